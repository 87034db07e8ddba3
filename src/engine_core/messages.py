"""The messages between front end and engine core, encoded with msgpack.

A request travels as three frames: kind, header, prompt token ids. A result travels as two: kind and
either the encoded `EngineCoreOutputs` or the name of the shared-memory file that holds them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

ADD, ABORT = b"ADD", b"ABORT"
READY, OUTPUTS, SHM = b"READY", b"OUT", b"SHM"


class EngineCoreRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Header of one request: how to pool, or how to sample. Lengths in tokens."""

    request_id: str
    task: Literal["generate", "embed", "token_embed"]
    pool: Literal["last", "mean"] = "last"
    dimensions: int | None = None
    truncate_prompt_tokens: int | None = None
    max_tokens: int = 16
    temperature: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    ignore_eos: bool = False


class AbortRequests(msgspec.Struct, frozen=True):
    """Ids of requests nobody waits for any more."""

    request_ids: tuple[str, ...]


class TokenLogprobs(msgspec.Struct, frozen=True):
    """One generated token: its text, log-probability, rank (1 is the likeliest), and the likeliest rivals."""

    token: str
    logprob: float
    rank: int
    top: dict[str, float]


class EngineCoreOutput(msgspec.Struct, kw_only=True):
    """News of one request. `embedding` is float32 little-endian, `embedding_rows` its number of rows."""

    request_id: str
    text: str = ""
    num_new_tokens: int = 0
    logprobs: list[TokenLogprobs] = []
    embedding: bytes | None = None
    embedding_rows: int = 1
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    queue_seconds: float | None = None
    finish_reason: Literal["stop", "length", "abort", "error"] | None = None
    error: str = ""


class SchedulerStats(msgspec.Struct, kw_only=True):
    """The scheduler after one step; tokens and preemptions are those of the step, queries and hits totals."""

    num_running: int
    num_waiting: int
    kv_cache_usage: float
    num_scheduled_tokens: int = 0
    num_preempted: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0


class EngineCoreOutputs(msgspec.Struct, kw_only=True):
    """One step's results and statistics."""

    outputs: list[EngineCoreOutput] = []
    stats: SchedulerStats | None = None


class EngineReady(msgspec.Struct, kw_only=True):
    """The engine core's first message: it can take requests."""

    pid: int
    device: str
    weights: str
    num_blocks: int
    block_size: int
