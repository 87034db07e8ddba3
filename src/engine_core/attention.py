"""Attention over the paged KV cache: every token's key and value lives in a slot of a block."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


@dataclass(slots=True)
class PrefillSpan:
    """One request's rows of the batch. Shapes: `slots` (kv_len,), `mask` (query_len, kv_len) or None."""

    start: int
    end: int
    slots: Tensor
    mask: Tensor | None


@dataclass(slots=True)
class AttentionMetadata:
    """What attention needs to know of one step.

    Shapes: `positions`, `slot_mapping` (tokens,); `decode_rows` (decodes,); `decode_slots`
    (decodes, longest kv_len); `decode_mask` (decodes, 1, 1, longest kv_len), True where attended.
    `kv_cache[layer]` is the pair of keys and values, each (slots, kv heads, head_dim).
    """

    positions: Tensor
    slot_mapping: Tensor
    kv_cache: list[tuple[Tensor, Tensor]]
    prefills: list[PrefillSpan] = field(default_factory=list)
    decode_rows: Tensor | None = None
    decode_slots: Tensor | None = None
    decode_mask: Tensor | None = None


def paged_attention(query: Tensor, key: Tensor, value: Tensor, layer: int, metadata: AttentionMetadata) -> Tensor:
    """Write this step's keys and values into their slots and attend over each request's whole past.

    Shapes: query (tokens, heads, head_dim), key and value (tokens, kv heads, head_dim) -> like query.
    """
    keys, values = metadata.kv_cache[layer]
    keys[metadata.slot_mapping] = key
    values[metadata.slot_mapping] = value
    output = torch.empty_like(query)
    for span in metadata.prefills:
        output[span.start : span.end] = _attend_span(query[span.start : span.end], keys, values, span)
    if metadata.decode_rows is not None:
        output[metadata.decode_rows] = _attend_decodes(query[metadata.decode_rows], keys, values, metadata)
    return output


def _attend_span(query: Tensor, keys: Tensor, values: Tensor, span: PrefillSpan) -> Tensor:
    groups = query.shape[1] // keys.shape[1]
    past_keys = keys[span.slots].transpose(0, 1).repeat_interleave(groups, dim=0)
    past_values = values[span.slots].transpose(0, 1).repeat_interleave(groups, dim=0)
    attended = scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        past_keys[None],
        past_values[None],
        attn_mask=span.mask,
        is_causal=span.mask is None,
    )
    return attended[0].transpose(0, 1)


def _attend_decodes(query: Tensor, keys: Tensor, values: Tensor, metadata: AttentionMetadata) -> Tensor:
    """Attend with one query per request; the heads that share a kv head take the place of query rows."""
    assert metadata.decode_slots is not None
    grouped = query.view(query.shape[0], keys.shape[1], -1, query.shape[2])
    attended = scaled_dot_product_attention(
        grouped,
        keys[metadata.decode_slots].transpose(1, 2),
        values[metadata.decode_slots].transpose(1, 2),
        attn_mask=metadata.decode_mask,
    )
    return attended.reshape(query.shape)
