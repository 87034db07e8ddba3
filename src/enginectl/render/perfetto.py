"""The window as a Perfetto trace: a track per thread, named by its role, and counter tracks below.

On each track the outer slices are wait classes and the inner ones wait points. Numbers of the messages' fields are
those of Perfetto's `trace_packet.proto`, `track_event.proto` and `track_descriptor.proto`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator

from enginectl.model.timeline import Timeline, TimelineRow, TimelineSeries
from enginectl.render import words
from enginectl.render.protobuf import block, double, number, text
from enginectl.render.spans import edges_of, spans_of, track_name

_PACKET, _TIMESTAMP, _SEQUENCE, _FLAGS, _EVENT, _DESCRIPTOR = 1, 8, 10, 13, 11, 60
_TYPE, _TRACK, _NAME, _CATEGORY, _DOUBLE = 9, 11, 23, 22, 44
_UUID, _TRACK_NAME, _PROCESS, _THREAD, _PARENT, _COUNTER = 1, 2, 3, 4, 5, 8
_BEGIN, _END, _VALUE = 1, 2, 4
_STATE_CLEARED = 1


def render_perfetto(timeline: Timeline) -> bytes:
    """A trace file for ui.perfetto.dev.

    Shape: n rows and m series -> n + m tracks. Times count from the first snapshot, in nanoseconds. A thread without
    a sample leaves a hole, and a number that was not read gives no point. Errors: none.
    """
    edges = edges_of(timeline.times)
    tracks: list[bytes] = []
    events: list[tuple[int, int, bytes]] = []
    for pid in dict.fromkeys(row.pid for row in timeline.rows):
        rows = [row for row in timeline.rows if row.pid == pid]
        tracks.append(_process(rows[0]))
        for row in rows:
            tracks.append(_thread(row))
            events += _slices(row, edges)
    for series in (*timeline.gpus, *timeline.counters):
        tracks.append(_counter(series))
        events += _points(series, timeline.times)
    events.sort(key=lambda event: event[:2])
    packets = [_packet(block(_DESCRIPTOR, track), first=not index) for index, track in enumerate(tracks)]
    return b"".join([*packets, *(_packet(number(_TIMESTAMP, at) + block(_EVENT, body)) for at, _, body in events)])


def _packet(body: bytes, *, first: bool = False) -> bytes:
    flags = number(_FLAGS, _STATE_CLEARED) if first else b""
    return block(_PACKET, body + number(_SEQUENCE, 1) + flags)


def _uuid(*parts: object) -> int:
    """A stable identity for a track, never 0."""
    name = "/".join(map(str, parts)).encode()
    return (zlib.crc32(name) << 24 | zlib.adler32(name) & 0xFFFFFF) + 1


def _nanoseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e9))


def _process(row: TimelineRow) -> bytes:
    name = words.process(row.process_role, row.pid, row.rank)
    own = number(_UUID, _uuid("process", row.pid))
    if row.pid <= 0:
        return own + text(_TRACK_NAME, name)
    return own + block(_PROCESS, number(1, row.pid) + text(6, name))


def _thread(row: TimelineRow) -> bytes:
    own = number(_UUID, _uuid("thread", row.pid, row.tid)) + number(_PARENT, _uuid("process", row.pid))
    if row.pid <= 0 or row.tid is None or not 0 < row.tid < 1 << 31:
        return own + text(_TRACK_NAME, track_name(row))
    return own + block(_THREAD, number(1, row.pid) + number(2, row.tid) + text(5, track_name(row)))


def _slices(row: TimelineRow, edges: list[float]) -> Iterator[tuple[int, int, bytes]]:
    """(time, order at that time, event): ends before begins, inner ends first, outer begins first."""
    track = number(_TRACK, _uuid("thread", row.pid, row.tid))
    end = number(_TYPE, _END) + track
    waits = row.waits or ("",) * len(row.classes)
    for outer in spans_of(row.classes[: len(edges) - 1], edges):
        yield _nanoseconds(outer.start), 2, _begin(track, outer.value, "wait class")
        for inner in spans_of(waits[outer.first : outer.last + 1], edges, outer.first):
            yield _nanoseconds(inner.start), 3, _begin(track, inner.value, "wait point")
            yield _nanoseconds(inner.end), 0, end
        yield _nanoseconds(outer.end), 1, end


def _begin(track: bytes, name: str, category: str) -> bytes:
    return number(_TYPE, _BEGIN) + track + text(_NAME, words.clean(name)) + text(_CATEGORY, category)


def _counter(series: TimelineSeries) -> bytes:
    unit = text(6, words.clean(series.unit)) if series.unit else b""
    name = text(_TRACK_NAME, words.clean(series.name))
    return number(_UUID, _uuid("counter", series.name)) + name + block(_COUNTER, unit)


def _points(series: TimelineSeries, times: tuple[float, ...]) -> Iterator[tuple[int, int, bytes]]:
    head = number(_TYPE, _VALUE) + number(_TRACK, _uuid("counter", series.name))
    for at, value in zip(times, series.values, strict=False):
        if value is not None and math.isfinite(value):
            yield _nanoseconds(at), 4, head + double(_DOUBLE, value)
