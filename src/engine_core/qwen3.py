"""A small Qwen3-style decoder for the tiny models: same equations and parameter names, no import of transformers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine_core.attention import AttentionMetadata, paged_attention
from engine_core.config import ModelSpec


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis."""

    def __init__(self, size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        """Shape kept."""
        return functional.rms_norm(hidden, self.weight.shape, self.weight, self.eps)


def rotate(hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding. Shapes: (tokens, heads, head_dim), cos and sin (tokens, 1, head_dim)."""
    left, right = hidden.chunk(2, dim=-1)
    return hidden * cos + torch.cat((-right, left), dim=-1) * sin


class SelfAttention(nn.Module):
    """Grouped-query attention with normalised queries and keys."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.layer, self.head_dim = layer, spec.head_dim
        query, shared = spec.num_attention_heads * spec.head_dim, spec.num_key_value_heads * spec.head_dim
        self.q_proj = nn.Linear(spec.hidden_size, query, bias=False)
        self.k_proj = nn.Linear(spec.hidden_size, shared, bias=False)
        self.v_proj = nn.Linear(spec.hidden_size, shared, bias=False)
        self.o_proj = nn.Linear(query, spec.hidden_size, bias=False)
        self.q_norm, self.k_norm = RMSNorm(spec.head_dim), RMSNorm(spec.head_dim)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, metadata: AttentionMetadata) -> Tensor:
        """Shape: (tokens, hidden) kept."""
        heads = (hidden.shape[0], -1, self.head_dim)
        query = rotate(self.q_norm(self.q_proj(hidden).view(heads)), cos, sin)
        key = rotate(self.k_norm(self.k_proj(hidden).view(heads)), cos, sin)
        attended = paged_attention(query, key, self.v_proj(hidden).view(heads), self.layer, metadata)
        output: Tensor = self.o_proj(attended.flatten(1))
        return output


class MLP(nn.Module):
    """Gated feed-forward layer."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=False)
        self.up_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=False)
        self.down_proj = nn.Linear(spec.intermediate_size, spec.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Shape: (tokens, hidden) kept."""
        output: Tensor = self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return output


class DecoderLayer(nn.Module):
    """Attention, then feed-forward, each after a norm and with a residual."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.self_attn, self.mlp = SelfAttention(spec, layer), MLP(spec)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(spec.hidden_size), RMSNorm(spec.hidden_size)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, metadata: AttentionMetadata) -> Tensor:
        """Shape: (tokens, hidden) kept."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cos, sin, metadata)
        output: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return output


class Qwen3Decoder(nn.Module):
    """Token ids and positions of a flat batch -> last hidden states."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(spec.vocab_size, spec.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(spec, layer) for layer in range(spec.num_hidden_layers))
        self.norm = RMSNorm(spec.hidden_size)
        self.head_dim, self.rope_theta = spec.head_dim, spec.rope_theta

    def forward(self, input_ids: Tensor, metadata: AttentionMetadata) -> Tensor:
        """Shapes: (tokens,) -> (tokens, hidden)."""
        steps = torch.arange(0, self.head_dim, 2, device=input_ids.device, dtype=torch.float32) / self.head_dim
        angles = metadata.positions.float()[:, None] * (self.rope_theta**-steps)[None]
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        cos, sin = angles.cos(), angles.sin()
        hidden = self.embed_tokens(input_ids)
        for layer in self.layers:
            hidden = layer(hidden, cos, sin, metadata)
        output: Tensor = self.norm(hidden)
        return output
