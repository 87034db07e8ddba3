"""Makes a tiny Qwen3 with random weights and a byte-level BPE tokenizer: 3.3 million parameters, a few seconds.

Run it with the Python of `tools/vllm_env.sh`: `python make_model.py FOLDER`. An existing model is left alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

VOCABULARY = 512
SENTENCE = "the quick brown fox jumps over the lazy dog while the engine schedules, prefills and decodes tokens"


def save_tokenizer(folder: Path) -> None:
    """A byte-level BPE tokenizer trained on one sentence."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|pad|>"]
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator([SENTENCE] * 50, vocab_size=VOCABULARY, special_tokens=special, show_progress=False)
    raw = folder / "tokenizer.raw.json"
    bpe.save(str(raw))
    make: Any = PreTrainedTokenizerFast
    tokenizer = make(
        tokenizer_file=str(raw),
        eos_token=special[0],
        pad_token=special[1],
        chat_template="{% for message in messages %}{{ message['content'] }}{% endfor %}",
    )
    tokenizer.save_pretrained(folder)
    raw.unlink()


def save_model(folder: Path) -> None:
    """Qwen3 with four layers of width 256, random weights from a fixed seed, bfloat16."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=0,
        pad_token_id=1,
    )
    model: Any = Qwen3ForCausalLM(config)
    model.to(torch.bfloat16).save_pretrained(folder)


def make_model(folder: Path) -> Path:
    """The model folder, made unless it is complete already."""
    if not (folder / "model.safetensors").exists() or not (folder / "tokenizer.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        save_tokenizer(folder)
        save_model(folder)
    return folder


if __name__ == "__main__":
    print(make_model(Path(sys.argv[1])))
