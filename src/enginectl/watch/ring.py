"""The last minutes in memory, bounded: a trigger saves what happened before it."""

from __future__ import annotations

from collections import deque

import msgspec

from enginectl.model.observed import Frame, ProcessFact, ProcessSample, Recording, Snapshot, ThreadSample

MAX_SNAPSHOTS = 3600
_KNOWN_STACKS = 20_000


class Ring:
    """Snapshots on one time axis, the older ones dropped. Parked threads share one copy of their stack."""

    def __init__(self, keep_seconds: float) -> None:
        self._keep_seconds = keep_seconds
        self._snapshots: deque[Snapshot] = deque(maxlen=MAX_SNAPSHOTS)
        self._facts: dict[int, ProcessFact] = {}
        self._head = Recording()
        self._stacks: dict[tuple[Frame, ...], tuple[Frame, ...]] = {}

    def __len__(self) -> int:
        return len(self._snapshots)

    def begin(self, head: Recording) -> None:
        """Take over the facts about the processes; snapshots that follow are theirs."""
        present = {p.pid for s in self._snapshots for p in s.processes}
        kept = {pid: fact for pid, fact in self._facts.items() if pid in present}
        self._facts = kept | {fact.pid: fact for fact in head.processes}
        self._head = head

    def add(self, snapshot: Snapshot, at: float) -> Snapshot:
        """Keep a snapshot that was taken at `at`, monotonic seconds; gives it back on the ring's own axis."""
        if len(self._stacks) > _KNOWN_STACKS:
            self._stacks.clear()
        kept = msgspec.structs.replace(
            snapshot, offset_seconds=at, processes=tuple(self._shared(p) for p in snapshot.processes)
        )
        self._snapshots.append(kept)
        while at - self._snapshots[0].offset_seconds > self._keep_seconds:
            self._snapshots.popleft()
        return kept

    def _shared(self, sample: ProcessSample) -> ProcessSample:
        threads = tuple(self._thread(thread) for thread in sample.threads)
        return msgspec.structs.replace(sample, threads=threads)

    def _thread(self, thread: ThreadSample) -> ThreadSample:
        if not thread.frames:
            return thread
        return msgspec.structs.replace(thread, frames=self._stacks.setdefault(thread.frames, thread.frames))

    @property
    def newest(self) -> float:
        """The time of the newest snapshot on the ring's axis, 0 when there is none."""
        return self._snapshots[-1].offset_seconds if self._snapshots else 0.0

    def head(self) -> Recording:
        """Everything but the snapshots."""
        return msgspec.structs.replace(self._head, processes=tuple(self._facts.values()), snapshots=())

    def recording(self, seconds: float | None = None) -> Recording:
        """The whole ring, or its last `seconds`, as a recording whose time begins at 0."""
        rows = list(self._snapshots)
        if seconds is not None and rows:
            rows = [s for s in rows if rows[-1].offset_seconds - s.offset_seconds <= seconds]
        first = rows[0].offset_seconds if rows else 0.0
        present = {p.pid for s in rows for p in s.processes}
        moved = tuple(msgspec.structs.replace(s, offset_seconds=s.offset_seconds - first) for s in rows)
        return msgspec.structs.replace(
            self._head,
            processes=tuple(fact for fact in self._facts.values() if fact.pid in present),
            snapshots=moved,
            wall_seconds=moved[-1].offset_seconds if moved else 0.0,
        )
