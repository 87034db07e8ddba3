"""The engine clock and the device clock over the window, with what a facts file states in their place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from enginectl.knowledge.loader import Knowledge
from enginectl.model.observed import CounterSample, GpuSample, Recording

KEEP_ALIVE_SLACK_SECONDS = 2.0
IDLE_POWER_SHARE = 0.25
"""At 90 % utilisation, less than this share of the power limit with no memory traffic is spinning, not work."""


class EngineClock(msgspec.Struct, frozen=True, kw_only=True):
    """Deltas and last values of the engine's counters; every field is None when it could not be read.

    Rates are per second over the window. `frozen_seconds` is how long no progress counter moved: the window's
    length when none moved, 0 when one did. `stalled_engines` counts engines (data-parallel labels) whose own counters
    stood still although they had requests: one of them is enough for `progress` to be False.
    """

    running: float | None = None
    waiting: float | None = None
    kv_usage_ratio: float | None = None
    tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    steps_per_second: float | None = None
    finished_per_second: float | None = None
    aborted_per_second: float | None = None
    preemptions_per_second: float | None = None
    frozen_seconds: float | None = None
    progress: bool | None = None
    unanswered_requests: int | None = None
    unanswered_seconds: float | None = None
    unclear_requests: int | None = None
    owed_by_keep_alive: bool | None = None
    device_is_cpu: bool | None = None
    weights_random: bool | None = None
    steps_total: float | None = None
    stalled_engines: int | None = None
    window_seconds: float | None = None

    @property
    def outstanding(self) -> float | None:
        """Requests that the engine owes an answer for, by the most pessimistic source; None when none is known."""
        gauges = [v for v in (self.running, self.waiting) if v is not None]
        known = [sum(gauges)] if gauges else []
        if self.unanswered_requests is not None:
            known.append(float(self.unanswered_requests))
        return max(known, default=None)


class DeviceClock(msgspec.Struct, frozen=True, kw_only=True):
    """What the devices did over the window. `busy_ratio` counts real work only, `spinning` is heat without work."""

    busy_ratio: float | None = None
    utilization_ratio: float | None = None
    power_share: float | None = None
    memory_activity_ratio: float | None = None
    spinning: bool | None = None
    fault: bool | None = None


def _sum(counters: Iterable[CounterSample], names: Sequence[str], **labels: str) -> float | None:
    """Sum over all series of the first name that is present and carries these labels."""
    rows = list(counters)
    for name in names:
        name, _, wanted = name.partition("{")
        label, _, value = wanted.rstrip("}").replace('"', "").partition("=")
        hits = [
            c.value
            for c in rows
            if c.name == name
            and (not label or c.labels.get(label) == value)
            and all(c.labels.get(k) == v for k, v in labels.items())
        ]
        if hits:
            return sum(hits)
        if label and any(c.name == name for c in rows):
            return 0.0
    return None


def _max(counters: Iterable[CounterSample], names: Sequence[str]) -> float | None:
    rows = list(counters)
    return next((max(v) for name in names if (v := [c.value for c in rows if c.name == name])), None)


def _as_ratio(value: float | None) -> float | None:
    """0..1, also from an exporter that counts in percent."""
    return value / 100 if value is not None and value > 1.5 else value


def counter_names(knowledge: Knowledge, engine: str | None) -> dict[str, tuple[str, ...]]:
    """Metric names by meaning for one engine, or for all of them when it is unknown."""
    if engine in knowledge.engines and engine is not None:
        return knowledge.engines[engine].counters
    merged: dict[str, tuple[str, ...]] = {}
    for row in knowledge.engines.values():
        for meaning, names in row.counters.items():
            merged[meaning] = (*merged.get(meaning, ()), *names)
    return merged


def _last(values: Iterable[float | None]) -> float | None:
    return next((v for v in reversed(list(values)) if v is not None), None)


def engine_clock(recording: Recording, knowledge: Knowledge, engine: str | None) -> EngineClock:
    """The engine clock of one recording.

    Errors: none.  Source: Prometheus text of the engine's /metrics, INET_DIAG, or the facts file.
    """
    names = counter_names(knowledge, engine)
    clients = _clients(recording, knowledge, engine)
    reads = [(s.offset_seconds, s.counters) for s in recording.snapshots if s.counters]
    values: dict[str, Any] = {}
    window: float | None = None
    if reads:
        last = reads[-1][1]
        values["running"] = _sum(last, names.get("running", ()))
        values["waiting"] = _sum(last, names.get("waiting", ()))
        values["kv_usage_ratio"] = _as_ratio(_max(last, names.get("kv_usage_ratio", ())))
        values["steps_total"] = _sum(last, names.get("steps", ()))
    if len(reads) > 1 and reads[-1][0] > reads[0][0]:
        window = reads[-1][0] - reads[0][0]
        for key, meaning in _RATES.items():
            before, after = (_sum(r, names.get(meaning, ())) for r in (reads[0][1], reads[-1][1]))
            # a counter that is not there yet has counted nothing
            values[key] = None if after is None else max(0.0, after - (before or 0.0)) / window
    clock = EngineClock(
        **values,
        window_seconds=window,
        **clients,
        device_is_cpu=_device_is_cpu(reads[-1][1]) if reads else None,
        stalled_engines=_stalled(reads[0][1], reads[-1][1], names) if window else None,
        weights_random=any(c.labels.get("weights") == "random" for c in reads[-1][1]) if reads else None,
    )
    return _with_stated(_with_progress(clock), recording)


def _clients(recording: Recording, knowledge: Knowledge, engine: str | None) -> dict[str, Any]:
    """Whether clients wait: the most pessimistic read of those that do, the last one of those that are not clear.

    A connection that stays open for longer than the front end keeps one on which nothing is owed waits for an answer.
    """
    rows = [[p for p in s.processes if p.unanswered_requests is not None] for s in recording.snapshots]
    reads = [read for read in rows if read]
    if not reads:
        return {}
    owed = max(sum(p.unanswered_requests or 0 for p in read) for read in reads)
    age = max((p.unanswered_seconds for read in reads for p in read if p.unanswered_seconds), default=None)
    unclear = sum(p.unclear_requests or 0 for p in reads[-1])
    limit = _keep_alive(recording, knowledge, engine)
    old = [a for p in reads[-1] for a in p.unclear_seconds if limit is not None and a > limit]
    return {
        "unanswered_requests": max(owed, len(old)),
        "unanswered_seconds": max([*old, *([age] if age is not None else [])], default=None),
        "unclear_requests": unclear - len(old),
        "owed_by_keep_alive": not owed and bool(old),
    }


def _keep_alive(recording: Recording, knowledge: Knowledge, engine: str | None) -> float | None:
    """Seconds after which this front end has closed a connection that owes nothing.

    None when it is not known: no front end, or its environment could not be read (a retitled process has lost it).
    """
    row = knowledge.engines.get(engine or "")
    fronts = [p for p in recording.processes if p.role == "frontend"]
    if row is None or row.keep_alive_seconds is None or not fronts or not all(p.environment_count for p in fronts):
        return None
    stated = [p.environment[row.keep_alive_variable] for p in fronts if row.keep_alive_variable in p.environment]
    try:
        return max((float(value) for value in stated), default=row.keep_alive_seconds) + KEEP_ALIVE_SLACK_SECONDS
    except ValueError:
        return None


_RATES = {
    "tokens_per_second": "generation_tokens",
    "prompt_tokens_per_second": "prompt_tokens",
    "steps_per_second": "steps",
    "finished_per_second": "finished",
    "aborted_per_second": "aborted",
    "preemptions_per_second": "preemptions",
}


def _stalled(before: Sequence[CounterSample], after: Sequence[CounterSample], names: dict[str, tuple[str, ...]]) -> int:
    """How many engines, told apart by their `engine` label, had requests at both ends and moved nothing between."""
    labels = {c.labels["engine"] for c in after if "engine" in c.labels}
    if len(labels) < 2:
        return 0

    def total(counters: Sequence[CounterSample], label: str, *meanings: str) -> float:
        return sum(_sum(counters, names.get(m, ()), engine=label) or 0.0 for m in meanings)

    progress = ("steps", "generation_tokens", "prompt_tokens", "finished")
    return sum(
        total(before, label, "running", "waiting") > 0
        and total(after, label, "running", "waiting") > 0
        and total(before, label, *progress) == total(after, label, *progress)
        for label in labels
    )


def _device_is_cpu(counters: Sequence[CounterSample]) -> bool | None:
    devices = [c.labels["device"] for c in counters if "device" in c.labels and c.name.endswith("model_info")]
    return devices[0] == "cpu" if devices else None


def _with_progress(clock: EngineClock) -> EngineClock:
    rates = (
        clock.tokens_per_second,
        clock.prompt_tokens_per_second,
        clock.steps_per_second,
        clock.finished_per_second,
    )
    known = [r for r in rates if r is not None]
    if not known or clock.window_seconds is None:
        return clock
    moved = any(rate > 0 for rate in known) and not clock.stalled_engines
    return msgspec.structs.replace(clock, progress=moved, frozen_seconds=0.0 if moved else clock.window_seconds)


def _with_stated(clock: EngineClock, recording: Recording) -> EngineClock:
    changes: dict[str, float | bool | int | None] = {}
    if "throughput-moving" in recording.notes and clock.progress is None:
        changes["progress"] = True
    stated = recording.stated
    if stated is None:
        return msgspec.structs.replace(clock, **changes)
    if stated.requests.running is not None:
        changes["running"] = stated.requests.running
    if stated.requests.waiting is not None:
        changes["waiting"] = stated.requests.waiting
    progress = stated.progress
    if progress.tokens_per_second is not None:
        changes |= {"tokens_per_second": progress.tokens_per_second, "progress": progress.tokens_per_second > 0}
    if progress.tokens_frozen_seconds is not None:
        frozen = progress.tokens_frozen_seconds
        changes |= {"frozen_seconds": frozen, "progress": frozen == 0}
    return msgspec.structs.replace(clock, **changes)


def _gpu_series(recording: Recording) -> list[GpuSample]:
    if recording.stated and recording.stated.gpus:
        return list(recording.stated.gpus)
    return [g for s in recording.snapshots for g in s.gpus or ()]


def gpu_busy(gpu: GpuSample) -> float | None:
    """Share of real work in one sample, 0..1: utilisation, discounted when power and memory traffic deny it."""
    if gpu.sm_activity_ratio is not None:
        return gpu.sm_activity_ratio
    if gpu.utilization_percent is None:
        return None
    utilization = gpu.utilization_percent / 100
    return 0.0 if gpu_spins(gpu) else utilization


def gpu_spins(gpu: GpuSample) -> bool:
    """Utilised, but at low power without memory traffic: a spinning kernel or a collective waiting for a peer."""
    if (gpu.utilization_percent or 0) < 80:
        return False
    share = _power_share(gpu)
    traffic = gpu.memory_activity_percent if gpu.memory_activity_percent is not None else 0
    if share is None:
        return gpu.memory_activity_percent == 0
    return share < IDLE_POWER_SHARE and traffic <= 1


def _power_share(gpu: GpuSample) -> float | None:
    if gpu.power_watts is None or not gpu.power_limit_watts:
        return None
    return gpu.power_watts / gpu.power_limit_watts


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def device_clock(recording: Recording) -> DeviceClock:
    """The device clock over all GPUs of the recording; all fields None without one."""
    gpus = _gpu_series(recording)
    if not gpus:
        return DeviceClock()
    return DeviceClock(
        busy_ratio=_mean(gpu_busy(g) for g in gpus),
        utilization_ratio=_mean(g.utilization_percent / 100 for g in gpus if g.utilization_percent is not None),
        power_share=_mean(_power_share(g) for g in gpus),
        memory_activity_ratio=_mean(
            g.memory_activity_percent / 100 for g in gpus if g.memory_activity_percent is not None
        ),
        spinning=_spinning(gpus),
        fault=any(g.fault is not None or g.xid in FATAL_XIDS for g in gpus),
    )


FATAL_XIDS = frozenset({13, 31, 43, 45, 46, 48, 61, 62, 64, 74, 79, 92, 94, 95, 109, 119, 120, 140})
"""Driver errors after which work on the device does not go on; others (a remapped row, say) are history."""


def _spinning(gpus: Sequence[GpuSample]) -> bool:
    """Whether one and the same GPU spun in most of its samples."""
    per_gpu: dict[int, list[bool]] = {}
    for gpu in gpus:
        per_gpu.setdefault(gpu.index, []).append(gpu_spins(gpu))
    return any(sum(seen) * 2 > len(seen) for seen in per_gpu.values())
