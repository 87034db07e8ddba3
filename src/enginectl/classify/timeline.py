"""Per-snapshot wait classes of every engine thread, for reports that draw them over time."""

from __future__ import annotations

from enginectl.classify.matchers import matcher_for
from enginectl.classify.topology import topology
from enginectl.classify.views import os_state_of
from enginectl.knowledge.loader import Knowledge
from enginectl.model.observed import Recording
from enginectl.model.timeline import Timeline, TimelineRow, TimelineSeries


def timeline_of(recording: Recording, knowledge: Knowledge) -> Timeline:
    """The window drawn out: one row per thread with stacks, one series per GPU gauge and engine gauge."""
    times = tuple(s.offset_seconds for s in recording.snapshots)
    rows: list[TimelineRow] = []
    for process in topology(recording, knowledge).processes:
        matcher = matcher_for(knowledge, process.engine)
        for view in process.threads:
            if not view.frames:
                continue
            classes: list[str] = []
            waits: list[str] = []
            for snapshot in recording.snapshots:
                sample = next((p for p in snapshot.processes if p.pid == process.pid), None)
                thread = next((t for t in sample.threads if t.tid == view.tid), None) if sample else None
                if thread is None or not thread.frames:
                    classes.append("")
                    waits.append("")
                    continue
                found = matcher.match(thread.frames, role=process.role, os_state=os_state_of(thread))
                classes.append(found.row.wait_class if found else "unknown")
                waits.append(found.row.id if found else "")
            rows.append(
                TimelineRow(
                    pid=process.pid,
                    role=view.role,
                    name=view.name,
                    classes=tuple(classes),
                    tid=view.tid,
                    process_role=process.role,
                    rank=process.ranks.get("tp"),
                    waits=tuple(waits),
                )
            )
    return Timeline(times=times, rows=tuple(rows), gpus=_gpus(recording), counters=_counters(recording))


def _gpus(recording: Recording) -> tuple[TimelineSeries, ...]:
    indices = sorted({g.index for s in recording.snapshots for g in s.gpus or ()})
    series: list[TimelineSeries] = []
    for index in indices:
        samples = [next((g for g in s.gpus or () if g.index == index), None) for s in recording.snapshots]
        used = tuple(g.utilization_percent if g else None for g in samples)
        watts = tuple(g.power_watts if g else None for g in samples)
        limit = next((g.power_limit_watts for g in samples if g), None)
        series.append(TimelineSeries(name=f"GPU {index} utilisation", values=used, unit="percent", maximum=100.0))
        series.append(TimelineSeries(name=f"GPU {index} power", values=watts, unit="watts", maximum=limit))
    return tuple(series)


_GAUGES = ("num_requests_running", "num_requests_waiting", "num_running_reqs", "num_queue_reqs")


def _counters(recording: Recording) -> tuple[TimelineSeries, ...]:
    series: list[TimelineSeries] = []
    for gauge in _GAUGES:
        values = tuple(
            sum(hits) if (hits := [c.value for c in s.counters or () if c.name.endswith(":" + gauge)]) else None
            for s in recording.snapshots
        )
        if any(v is not None for v in values):
            series.append(TimelineSeries(name=gauge, values=values))
    return tuple(series)
