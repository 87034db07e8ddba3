"""What happened over the window, snapshot by snapshot: the input of the HTML report's timeline."""

from __future__ import annotations

import msgspec


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """One thread. `classes` holds its wait class at each time, `waits` the wait point's id; "" where unknown."""

    pid: int
    role: str
    name: str
    classes: tuple[str, ...]
    tid: int | None = None
    process_role: str = ""
    rank: int | None = None
    waits: tuple[str, ...] = ()


class TimelineSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One number over time: `values` has one entry per time, None where it was not read.

    `unit` is a unit of evidence (`ratio`, `percent`, `watts`, `bytes`, `tokens/s`, ""); `maximum` is the top of
    the scale, None for the largest value seen.
    """

    name: str
    values: tuple[float | None, ...]
    unit: str = ""
    maximum: float | None = None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """`times` are seconds since the first snapshot, ascending; everything else has one entry per time."""

    times: tuple[float, ...]
    rows: tuple[TimelineRow, ...] = ()
    gpus: tuple[TimelineSeries, ...] = ()
    counters: tuple[TimelineSeries, ...] = ()
