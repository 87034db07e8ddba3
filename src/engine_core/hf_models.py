"""The true architectures, run by transformers: Qwen3 on this engine's paged KV cache, and BERT."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from engine_core.attention import AttentionMetadata, paged_attention
from engine_core.config import ModelSpec

PAGED = "engine_core_paged"


def _attention_of_transformers(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention as transformers calls it. Shapes: (1, heads, tokens, head_dim) -> (1, tokens, heads, head_dim)."""
    rows = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]
    return paged_attention(rows[0], rows[1], rows[2], module.layer_idx, kwargs["metadata"])[None], None


class TransformersQwen3(nn.Module):
    """Qwen3Model with its attention replaced by the paged one."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        from transformers import AttentionInterface
        from transformers.models.qwen3 import Qwen3Config
        from transformers.models.qwen3.modeling_qwen3 import Qwen3Model, Qwen3RotaryEmbedding

        AttentionInterface.register(PAGED, _attention_of_transformers)
        config = Qwen3Config(
            vocab_size=spec.vocab_size,
            hidden_size=spec.hidden_size,
            intermediate_size=spec.intermediate_size,
            num_hidden_layers=spec.num_hidden_layers,
            num_attention_heads=spec.num_attention_heads,
            num_key_value_heads=spec.num_key_value_heads,
            head_dim=spec.head_dim,
            max_position_embeddings=spec.max_position_embeddings,
            rope_parameters={"rope_type": "default", "rope_theta": spec.rope_theta},
        )
        config._attn_implementation = PAGED
        with torch.device("meta"):
            self.model = Qwen3Model(config)
        self.model.rotary_emb = Qwen3RotaryEmbedding(config)

    def forward(self, input_ids: Tensor, metadata: AttentionMetadata) -> Tensor:
        """Shapes: (tokens,) -> (tokens, hidden)."""
        output: Tensor = self.model(
            input_ids=input_ids[None], position_ids=metadata.positions[None], use_cache=False, metadata=metadata
        ).last_hidden_state
        return output[0]


class TransformersBert(nn.Module):
    """BertModel over padded whole prompts; it keeps nothing in the KV cache."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        from transformers.models.bert import BertConfig
        from transformers.models.bert.modeling_bert import BertModel

        config = BertConfig(
            vocab_size=spec.vocab_size,
            hidden_size=spec.hidden_size,
            intermediate_size=spec.intermediate_size,
            num_hidden_layers=spec.num_hidden_layers,
            num_attention_heads=spec.num_attention_heads,
            max_position_embeddings=spec.max_position_embeddings,
        )
        self.model = BertModel(config, add_pooling_layer=False)

    def forward(self, input_ids: Tensor, metadata: AttentionMetadata) -> Tensor:
        """Shapes: (tokens,) -> (tokens, hidden)."""
        spans = metadata.prefills
        longest = max(span.end - span.start for span in spans)
        padded = input_ids.new_zeros(len(spans), longest)
        mask = input_ids.new_zeros(len(spans), longest)
        for row, span in enumerate(spans):
            padded[row, : span.end - span.start] = input_ids[span.start : span.end]
            mask[row, : span.end - span.start] = 1
        hidden = self.model(input_ids=padded, attention_mask=mask).last_hidden_state
        return torch.cat([hidden[row, : span.end - span.start] for row, span in enumerate(spans)])
