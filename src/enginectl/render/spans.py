"""Runs of equal values over time: what the exports draw as slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

import msgspec

from enginectl.model.timeline import TimelineRow
from enginectl.render import words


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One value held from `start` to `end` seconds; `first` and `last` are the snapshots it covers, inclusive."""

    value: str
    start: float
    end: float
    first: int
    last: int


def edges_of(times: Sequence[float]) -> list[float]:
    """Where each snapshot begins to stand for its time, and the end: the last one lasts one usual interval."""
    if not times:
        return []
    ascending = list(times)
    for index, (before, after) in enumerate(pairwise(times), start=1):
        ascending[index] = max(ascending[index - 1], after, before)
    gaps = sorted(after - before for before, after in pairwise(ascending) if after > before)
    return [*ascending, ascending[-1] + (gaps[len(gaps) // 2] if gaps else 1.0)]


def spans_of(values: Sequence[str], edges: Sequence[float], start: int = 0) -> Iterator[Span]:
    """Runs of one value, in order; empty values are times without a sample and give none.

    Shape: n values and at least start + n + 1 edges -> at most n spans. `start` is the index of the first value.
    """
    at = start
    for value, run in groupby(values):
        end = at + sum(1 for _ in run)
        if value and edges[end] > edges[at]:
            yield Span(value=value, start=edges[at], end=edges[end], first=at, last=end - 1)
        at = end


def track_name(row: TimelineRow) -> str:
    """The name of a thread's track: its role, and its own name where that says more."""
    own = words.thread_name(row.name)
    role = words.clean(row.role) or "thread"
    return role if not own or own == role else f"{role} ({own})"
