"""What went into a recording, counted while it is written and told in plain words afterwards."""

from __future__ import annotations

from enginectl.model.observed import Gap, Recording, Snapshot


class Contents:
    """Counts what went into a recording while it is written."""

    def __init__(self) -> None:
        self.snapshots = self.stacks = self.counters = self.gpus = 0
        self.missing: dict[str, str] = {}

    def add(self, snapshot: Snapshot) -> None:
        """Count one snapshot."""
        self.snapshots += 1
        self.stacks += any(t.frames is not None for p in snapshot.processes for t in p.threads)
        self.counters += snapshot.counters is not None
        self.gpus = max(self.gpus, len(snapshot.gpus or ()))
        for gap in snapshot.gaps:
            self.missing.setdefault(gap.source, _gap(gap))

    def lines(self, head: Recording) -> list[str]:
        """What is inside, one line each, and what could not be read."""
        engines = sorted({f"{p.engine} {p.engine_version or '(version unknown)'}" for p in head.processes if p.engine})
        gaps = {**{gap.source: _gap(gap) for gap in head.gaps}, **self.missing}
        return [
            f"{len(head.processes)} processes of {', '.join(engines) or 'an unknown engine'}, with their flags",
            f"{self.stacks} x stacks, {self.snapshots} x /proc facts, {self.counters} x engine counters",
            f"{self.gpus} GPUs" if self.gpus else "no GPU",
            *(f"log: {note.removeprefix('log: ')}" for note in head.notes if note.startswith("log: ")),
            *(f"missing: {source}: {told}" for source, told in gaps.items()),
        ]


def _gap(gap: Gap) -> str:
    return f"{gap.reason} ({gap.remedy})" if gap.remedy else gap.reason
