"""Which evidence tiers a recording reached, and what would open the others."""

from __future__ import annotations

from enginectl.model.diagnosed import Tier
from enginectl.model.observed import Gap, Recording

_ADDS = {
    "T0": "whether tokens and requests move",
    "T1": "process states, CPU per thread, kernel waits, GPU",
    "T2": "what each thread does and who waits for whom",
    "T3": "device, lock and socket waits below Python",
}


def _remedy(gaps: tuple[Gap, ...], source: str) -> str:
    return next((g.remedy for g in gaps if g.source == source and g.remedy), "")


def tiers_of(recording: Recording) -> tuple[Tier, ...]:
    """T0 to T3 with `reached`, what each adds, and the line that unlocks a missing one."""
    snapshots = recording.snapshots
    gaps = (*recording.gaps, *(g for s in snapshots for g in s.gaps))
    threads = [t for s in snapshots for p in s.processes for t in p.threads]
    reached = {
        "T0": any(s.counters for s in snapshots),
        "T1": any(t.cpu_seconds is not None for t in threads),
        "T2": any(t.frames is not None for t in threads),
        "T3": any(f.native for t in threads for f in t.frames or ()),
    }
    unlock = {
        "T0": _remedy(gaps, "engine-counters") or "--url http://HOST:PORT/metrics",
        "T1": "run enginectl on the engine's host",
        "T2": _remedy(gaps, "stacks"),
        "T3": "--native",
    }
    return tuple(
        Tier(name=name, reached=reached[name], adds=_ADDS[name], unlock="" if reached[name] else unlock[name])
        for name in _ADDS
    )
