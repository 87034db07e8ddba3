"""Which rows of the knowledge count for an engine: one compiled matcher for each, kept."""

from __future__ import annotations

import functools
import re

from enginectl.classify.match import Matcher
from enginectl.knowledge.loader import GENERIC, Knowledge
from enginectl.knowledge.schema import WaitPoint


@functools.lru_cache(maxsize=32)
def _matcher(names: tuple[str, ...], strict: bool, holder: _Holder) -> Matcher:
    rows = ((name, row) for name in names for row in holder.knowledge.waits.get(name, ()))
    return Matcher(row for name, row in rows if not strict or name in GENERIC or _names_its_engine(row))


class _Holder:
    """Knowledge that hashes by identity."""

    def __init__(self, knowledge: Knowledge) -> None:
        self.knowledge = knowledge

    def __hash__(self) -> int:
        return id(self.knowledge)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Holder) and self.knowledge is other.knowledge


def matcher_for(knowledge: Knowledge, engine: str | None, stated: str | None = None) -> Matcher:
    """The matcher of one engine and the generic rows; of the `stated` engine, or of all, when that is unknown.

    Then only rows that name a file of their engine count: any asyncio program stands in `select`.
    """
    if engine is not None and engine in knowledge.waits:
        return _matcher((engine, *GENERIC), False, _Holder(knowledge))
    if engine is None and stated is not None and stated in knowledge.waits:
        return _matcher((stated, *GENERIC), True, _Holder(knowledge))
    return _matcher(tuple(dict.fromkeys((*sorted(knowledge.waits), *GENERIC))), True, _Holder(knowledge))


_COMMON_PATH = re.compile(
    r"\*$|(?:asyncio|uvloop|concurrent|multiprocessing|zmq|logging|anyio|uvicorn|granian|importlib|torch|ray|libc|lib\w+\.so)\b"
    r"|(?:selectors|threading|queue|socket|ssl|subprocess|contextlib|runpy)\.py$"
)


_LIBRARY_PATH = re.compile(
    r"(?:triton|flashinfer|deep_gemm|deep_ep|torch_npu|flash_attn|flash_mla|aiter|tvm|tvm_ffi|tilelang|cutlass|fla"
    r"|xgrammar|llguidance|outlines|outlines_core|lmformatenforcer|lmcache|sgl_kernel)\b|flash_attn_interface\.py$"
)
"""Libraries that several engines use: they tell what is done there, not whose process it is."""


def telling_places(knowledge: Knowledge) -> frozenset[str]:
    """Ids of the places that tell to which engine a process belongs."""
    return _telling(_Holder(knowledge))


@functools.lru_cache(maxsize=8)
def _telling(holder: _Holder) -> frozenset[str]:
    known = holder.knowledge
    return frozenset(
        row.id
        for engine in known.engines
        for row in known.waits.get(engine, ())
        if any(not _COMMON_PATH.match(path) and not _LIBRARY_PATH.match(path) for path in _paths(row))
    )


def _names_its_engine(row: WaitPoint) -> bool:
    """Whether a row of an engine's file has a frame pattern that no other program would match."""
    return any(not _COMMON_PATH.match(path) for path in _paths(row))


def _paths(row: WaitPoint) -> list[str]:
    return [part for text in row.frames for part in text.removeprefix("^").rpartition(":")[0].split("|")]
