"""The window as a speedscope file: per thread its sampled stacks, and its wait classes over time as slices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from enginectl import _version
from enginectl.model.observed import Frame, ProcessFact, Recording
from enginectl.model.timeline import Timeline, TimelineRow
from enginectl.render import words
from enginectl.render.spans import edges_of, spans_of, track_name

_FIRST = ("engine-loop", "worker-loop")
"""Whose waits are shown first."""
SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class _Frames:
    """The shared table of frames."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._known: dict[tuple[str, str, int | None], int] = {}

    def of(self, name: str, file: str = "", line: int | None = None) -> int:
        """The index of this frame, new or known."""
        key = (name, file, line)
        if key not in self._known:
            self._known[key] = len(self.rows)
            place = {"file": file} if file else {}
            self.rows.append({"name": name, **place, **({"line": line} if line else {})})
        return self._known[key]

    def stack(self, frames: tuple[Frame, ...]) -> list[int]:
        """A stack, outermost first."""
        return [self.of(words.clean(f.function), words.clean(f.file), f.line) for f in reversed(frames)]


def render_speedscope(recording: Recording, timeline: Timeline) -> str:
    """A file for speedscope.

    Shape: n timeline rows -> n profiles of slices (`events`) and n of stacks (`samples`); seconds. A snapshot stands
    until the next one. Counters have no place in this format. Errors: none.
    """
    frames, edges = _Frames(), edges_of(timeline.times)
    rows = [row for row in timeline.rows if any(row.classes)]
    profiles = [*_slices(rows, frames, edges), *_samples(rows, recording, frames, edges)]
    document = {
        "$schema": SCHEMA,
        "exporter": f"enginectl {_version.__version__}",
        "name": _title(recording.processes),
        "activeProfileIndex": next((i for i, row in enumerate(rows) if row.role in _FIRST), 0),
        "shared": {"frames": frames.rows},
        "profiles": profiles,
    }
    return json.dumps(document, separators=(",", ":"))


def _title(processes: tuple[ProcessFact, ...]) -> str:
    engines = dict.fromkeys(f"{p.engine} {p.engine_version or ''}".strip() for p in processes if p.engine)
    return words.clean(", ".join(engines) or "engine")


def _owner(row: TimelineRow) -> str:
    rank = "" if row.rank is None else f" rank {row.rank}"
    return f"{words.clean(row.process_role) or 'process'}{rank}"


def _slices(rows: list[TimelineRow], frames: _Frames, edges: list[float]) -> Iterator[dict[str, Any]]:
    for row in rows:
        events: list[dict[str, Any]] = []
        for outer in spans_of(row.classes, edges):
            _add(events, "O", frames.of(words.clean(outer.value)), outer.start)
            for inner in spans_of((row.waits or row.classes)[outer.first : outer.last + 1], edges, outer.first):
                if row.waits:
                    _add(events, "O", frames.of(words.clean(inner.value)), inner.start)
                    _add(events, "C", frames.of(words.clean(inner.value)), inner.end)
            _add(events, "C", frames.of(words.clean(outer.value)), outer.end)
        name = f"{_owner(row)} {row.pid}: {track_name(row)}, waits"
        yield {"type": "evented", "name": name, **_span(edges), "events": events}


def _add(events: list[dict[str, Any]], kind: str, frame: int, at: float) -> None:
    events.append({"type": kind, "frame": frame, "at": at})


def _span(edges: list[float]) -> dict[str, Any]:
    return {"unit": "seconds", "startValue": edges[0], "endValue": edges[-1]}


def _samples(
    rows: list[TimelineRow], recording: Recording, frames: _Frames, edges: list[float]
) -> Iterator[dict[str, Any]]:
    weights = [after - before for before, after in pairwise(edges)]
    for row in rows:
        stacks = [frames.stack(_stack(recording, index, row)) for index in range(len(weights))]
        name = f'{_owner(row)}: Process {row.pid} Thread {row.tid} "{words.clean(row.name)}", {words.clean(row.role)}'
        yield {"type": "sampled", "name": name, **_span(edges), "samples": stacks, "weights": weights}


def _stack(recording: Recording, index: int, row: TimelineRow) -> tuple[Frame, ...]:
    process = next((p for p in recording.snapshots[index].processes if p.pid == row.pid), None)
    thread = next((t for t in process.threads if t.tid == row.tid), None) if process else None
    return (thread.frames if thread else None) or ()
