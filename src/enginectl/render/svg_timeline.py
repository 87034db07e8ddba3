"""The timeline drawing: bands of wait classes per thread, devices and counters beneath on the same axis."""

from __future__ import annotations

import math
from itertools import groupby, pairwise

import msgspec

from enginectl.model.timeline import Timeline, TimelineRow, TimelineSeries
from enginectl.render import words
from enginectl.render.lines import cut

WIDTH = 980
LEFT = 236
RIGHT = 16
BAND = 20
SPARK = 34
_QUIET = frozenset({"", "idle", "timer", "unknown"})
_TICK_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """One rectangle: a wait class held from `start` to `end` seconds. `label` is empty when it would not fit."""

    x: float
    width: float
    group: str
    label: str
    hint: str


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the drawing: bands for a thread, or polylines (SVG points) for a number."""

    y: float
    label: str
    heading: bool = False
    bands: tuple[Band, ...] = ()
    lines: tuple[str, ...] = ()
    dots: tuple[tuple[float, float], ...] = ()
    reading: str = ""


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the template needs, in the drawing's own units."""

    width: float
    height: float
    left: float
    right: float
    lanes: tuple[Lane, ...]
    ticks: tuple[tuple[float, str], ...]
    axis_y: float
    groups: tuple[str, ...]
    summary: str


def draw_timeline(timeline: Timeline | None) -> Drawing | None:
    """Lay the timeline out. Shape: a timeline -> a drawing; None when there is nothing to draw. Errors: none."""
    if timeline is None or not timeline.times or not (timeline.rows or timeline.gpus or timeline.counters):
        return None
    edges = _edges(timeline.times)
    lanes, y = _thread_lanes(timeline.rows, edges)
    for heading, series in (("Devices", timeline.gpus), ("Engine counters", timeline.counters)):
        if series:
            lanes.append(Lane(y=y + 16, label=heading, heading=True))
            y += 26
        for one in series:
            lanes.append(_spark(one, timeline.times, edges, y))
            y += SPARK + 8
    span = edges[-1] - edges[0]
    groups = tuple(dict.fromkeys(band.group for lane in lanes for band in lane.bands))
    return Drawing(
        width=WIDTH, height=y + 30, left=LEFT, right=WIDTH - RIGHT, lanes=tuple(lanes), axis_y=y + 6, groups=groups,
        ticks=tuple((_x(edges[0] + at, edges), f"{words.number(at)} s") for at in _ticks(span)),
        summary=_summary(timeline, lanes),
    )  # fmt: skip


def _summary(timeline: Timeline, lanes: list[Lane]) -> str:
    threads = words.plural(sum(1 for lane in lanes if lane.bands), "thread")
    snapshots = words.plural(len(timeline.times), "snapshot")
    return f"{threads} in {snapshots} over {words.seconds(timeline.times[-1] - timeline.times[0])}"


def _edges(times: tuple[float, ...]) -> list[float]:
    """Where each snapshot's band begins, and where the last one ends (one usual gap later)."""
    gaps = sorted(after - before for before, after in pairwise(times))
    usual = gaps[len(gaps) // 2] if gaps else 1.0
    return [*times, times[-1] + (usual if usual > 0 else 1.0)]


def _x(at: float, edges: list[float]) -> float:
    share = (at - edges[0]) / ((edges[-1] - edges[0]) or 1.0)
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _ticks(span: float) -> list[float]:
    step = next((step for step in _TICK_STEPS if span / step <= 10), span / 8)
    return [step * index for index in range(int(span / step) + 1)] if math.isfinite(step) and step > 0 else [0.0]


def _thread_lanes(rows: tuple[TimelineRow, ...], edges: list[float]) -> tuple[list[Lane], float]:
    lanes: list[Lane] = []
    y = 4.0
    shown = [row for row in rows if row.role not in words.HELPER_ROLES or not _QUIET.issuperset(row.classes)]
    for _, members in groupby(shown, key=lambda row: row.pid):
        own = list(members)
        lanes.append(Lane(y=y + 14, label=words.process(own[0].process_role, own[0].pid, own[0].rank), heading=True))
        y += 22
        for row in own:
            name = words.thread_name(row.name)
            label = f"{words.clean(row.role)} {name}" if name and name != row.role else words.clean(row.role)
            lanes.append(Lane(y=y, label=cut(label, 32), bands=_bands(row, edges)))
            y += BAND + 4
        y += 6
    return lanes, y


def _bands(row: TimelineRow, edges: list[float]) -> tuple[Band, ...]:
    bands: list[Band] = []
    start = 0
    for group, run in groupby(row.classes[: len(edges) - 1]):
        end = start + len(list(run))
        if group:
            x, until = _x(edges[start], edges), _x(edges[end], edges)
            label = words.clean(group)
            fits = (until - x) > 8 * len(label) + 6
            hint = f"{words.clean(row.role)}: {label}, {edges[start]:.2f} s to {edges[end]:.2f} s"
            bands.append(Band(x=x, width=max(1.0, until - x), group=label, label=label if fits else "", hint=hint))
        start = end
    return tuple(bands)


def _spark(series: TimelineSeries, times: tuple[float, ...], edges: list[float], y: float) -> Lane:
    points = [
        (at, value)
        for at, value in zip(times, series.values, strict=False)
        if value is None or math.isfinite(value)
    ]  # fmt: skip
    seen = [value for _, value in points if value is not None]
    top = series.maximum or max([*seen, 0.0]) or 1.0
    lines, dots, run = [], [], []
    for at, value in [*points, (0.0, None)]:
        if value is not None:
            height = min(1.0, max(0.0, value / top)) * SPARK
            run.append((_x(at, edges), round(y + SPARK - height, 1)))
        elif run:
            lines.append(" ".join(f"{x},{level}" for x, level in run))
            dots.extend(run if len(run) == 1 else [])
            run = []
    last, most = (seen[-1], max(seen)) if seen else (None, None)
    reading = (
        f"last {words.quantity(last, series.unit)}, most {words.quantity(most, series.unit)}" if seen else "not read"
    )
    return Lane(
        y=y, label=cut(words.clean(series.name), 32), lines=tuple(lines), dots=tuple(dots), reading=cut(reading, 36)
    )
