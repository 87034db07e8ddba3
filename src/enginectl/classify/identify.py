"""Which engine a process belongs to and which part it plays, from its title, command line or stacks."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

import msgspec

from enginectl.classify.match import FramePattern, last_name
from enginectl.knowledge.loader import Knowledge
from enginectl.knowledge.schema import Engine, ProcessKind
from enginectl.model.observed import Frame


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a process was recognised as, and by what: `title`, `command` or `stack`."""

    engine: str
    kind: ProcessKind
    by: str

    @property
    def role(self) -> str:
        """The process role of the contract."""
        return self.kind.role


@functools.lru_cache(maxsize=512)
def _regex(text: str) -> re.Pattern[str]:
    return re.compile(text)


@functools.lru_cache(maxsize=512)
def _pattern(text: str) -> FramePattern:
    return FramePattern(text)


def _searches(pattern: str, text: str) -> bool:
    return bool(pattern) and bool(text) and _regex(pattern).search(text) is not None


def by_name(engines: Iterable[Engine], title: str, command: Sequence[str]) -> Identity | None:
    """The identity that the title or the command line gives, or None. Titles are tried before commands."""
    line = " ".join(command)
    for engine in engines:
        for kind in engine.process:
            if _searches(kind.title, title):
                return Identity(engine=engine.engine, kind=kind, by="title")
    for engine in engines:
        for kind in engine.process:
            if _searches(kind.command, line):
                return Identity(engine=engine.engine, kind=kind, by="command")
    return None


def has_frame(patterns: Iterable[str], frames: Sequence[Frame]) -> bool:
    """Whether any pattern fits any frame."""
    compiled = [_pattern(text) for text in patterns]
    return any(p.fits(last_name(f.function), f.function, f.file) for f in frames for p in compiled)


def by_stacks(engines: Iterable[Engine], stacks: Sequence[Sequence[Frame]]) -> Identity | None:
    """The identity that the outer frames of any thread give, or None. Kinds are tried in the order of the file."""
    for engine in engines:
        for kind in engine.process:
            if kind.frames and any(has_frame(kind.frames, frames) for frames in stacks):
                return Identity(engine=engine.engine, kind=kind, by="stack")
    return None


def kind_of(knowledge: Knowledge, engine: str | None, role: str | None) -> tuple[ProcessKind, ...]:
    """All process kinds of this engine and role; threads of a role are described by all of them together."""
    if engine is None or engine not in knowledge.engines:
        return ()
    return tuple(k for k in knowledge.engines[engine].process if role is None or k.role == role)


_RANK = re.compile(r"(?:^|[_\s\[])(PCP|DCP|DP|TP|PP|EP)(\d+)")


def ranks_of(title: str) -> dict[str, int]:
    """Rank labels in a title such as `VLLM::Worker_DP1_TP3`: {'dp': 1, 'tp': 3}."""
    return {tag.lower(): int(number) for tag, number in _RANK.findall(title)}
