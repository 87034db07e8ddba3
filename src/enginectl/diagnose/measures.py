"""Everything a fact may look at, gathered once per recording."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from fnmatch import fnmatchcase

from enginectl.diagnose.clocks import DeviceClock, EngineClock, device_clock, engine_clock
from enginectl.diagnose.collectives import CollectiveClock, collective_clock
from enginectl.knowledge.loader import Knowledge
from enginectl.knowledge.schema import WaitPoint
from enginectl.model.classified import ProcessView, ThreadView, Topology
from enginectl.model.observed import ProcessSample, Recording

ENGINE_ROLES = frozenset(
    {"engine-loop", "ipc", "ipc-in", "ipc-out", "output", "worker-loop", "frontend-loop", "async-output-copy"}
)
"""Thread roles that carry requests. All others only help."""
CORE_PROCESSES = frozenset({"engine-core", "worker", "detokenizer"})


class Measures:
    """One recording with its topology and clocks; the only argument of every fact."""

    def __init__(self, recording: Recording, topology: Topology, knowledge: Knowledge) -> None:
        self.recording = recording
        self.topology = topology
        self.knowledge = knowledge

    @functools.cached_property
    def engine_name(self) -> str | None:
        """The engine most processes belong to."""
        names = [p.engine for p in self.topology.processes if p.engine]
        return max(set(names), key=names.count, default=None)

    @functools.cached_property
    def engine(self) -> EngineClock:
        """The engine clock."""
        return engine_clock(self.recording, self.knowledge, self.engine_name)

    @functools.cached_property
    def stacks_may_be_torn(self) -> bool:
        """Whether any process was read while it ran on."""
        return any(p.moving for s in self.recording.snapshots for p in s.processes)

    @functools.cached_property
    def device(self) -> DeviceClock:
        """The device clock."""
        return device_clock(self.recording)

    @functools.cached_property
    def collectives(self) -> CollectiveClock | None:
        """The clock of the collectives; None when nobody counted them."""
        return collective_clock(self.recording)

    @functools.cached_property
    def threads(self) -> tuple[ThreadView, ...]:
        """All threads of all processes."""
        return tuple(t for p in self.topology.processes for t in p.threads)

    @functools.cached_property
    def by_node(self) -> dict[tuple[int, int], ThreadView]:
        """Threads by (pid, tid)."""
        return {(t.pid, t.tid): t for t in self.threads}

    @functools.cached_property
    def process_by_pid(self) -> dict[int, ProcessView]:
        """Processes by pid."""
        return {p.pid: p for p in self.topology.processes}

    @functools.cached_property
    def last_samples(self) -> tuple[ProcessSample, ...]:
        """The process samples of the newest snapshot."""
        return self.recording.snapshots[-1].processes if self.recording.snapshots else ()

    @property
    def window_seconds(self) -> float:
        """Length of the observation."""
        snapshots = self.recording.snapshots
        return snapshots[-1].offset_seconds - snapshots[0].offset_seconds if snapshots else 0.0

    @functools.cached_property
    def stack_samples(self) -> int:
        """Snapshots that carry at least one stack."""
        return sum(any(t.frames is not None for p in s.processes for t in p.threads) for s in self.recording.snapshots)

    def select(self, of: str) -> tuple[ThreadView, ...]:
        """Threads by selector.

        Shape: a role, `process-role:thread-role`, or `any`, `engine`, `core`, `loop`, `stray`, `sink`; `at:WAIT`
        selects the threads that stood at these places in most samples.
        """
        if of in ("", "any"):
            return self.threads
        if of == "engine":
            return tuple(
                t
                for p in self.topology.processes
                if p.role not in ("coordinator", "helper")
                for t in p.threads
                if t.role in ENGINE_ROLES
            )
        if of == "core":
            return tuple(
                t
                for p in self.topology.processes
                if p.role in CORE_PROCESSES
                for t in p.threads
                if t.role in ENGINE_ROLES
            )
        if of == "loop":
            return tuple(t for t in self.threads if t.role in ("engine-loop", "worker-loop"))
        if of == "stray":
            return tuple(t for t in self.threads if t.role in ("helper", "monitor") and t.frames)
        if of == "sink":
            node = self.topology.chain[-1] if self.topology.chain else None
            return (self.by_node[node],) if node else ()
        if of.startswith("at:"):
            wait = of.removeprefix("at:")
            return tuple(t for t in self.threads if (self.wait_share(t, wait) or 0.0) >= 0.5)
        process_role, _, thread_role = of.rpartition(":")
        return tuple(
            t
            for p in self.topology.processes
            if not process_role or p.role == process_role
            for t in p.threads
            if t.role == thread_role or (thread_role == "ipc" and t.role in ("ipc-in", "ipc-out"))
        )

    def row(self, wait_id: str | None) -> WaitPoint | None:
        """The knowledge row of a wait id."""
        return _row(self.knowledge_index, wait_id)

    @functools.cached_property
    def knowledge_index(self) -> dict[str, WaitPoint]:
        """All wait points by id."""
        return {row.id: row for rows in self.knowledge.waits.values() for row in rows}

    def wait_share(self, thread: ThreadView, wait: str) -> float | None:
        """Share of the thread's samples at places that `wait` names: id globs, `kind:a|b` or `class:a|b`."""
        if not thread.samples:
            return None
        if wait.startswith("class:"):
            wanted = wait.removeprefix("class:").split("|")
            return sum(thread.class_ratios.get(name, 0.0) for name in wanted)
        if wait.startswith("kind:"):
            kinds = wait.removeprefix("kind:").split("|")
            return sum(s for i, s in thread.wait_ratios.items() if (row := self.row(i)) and row.kind in kinds)
        return sum(s for i, s in thread.wait_ratios.items() if any(fnmatchcase(i, p) for p in wait.split("|")))


def _row(index: dict[str, WaitPoint], wait_id: str | None) -> WaitPoint | None:
    return index.get(wait_id) if wait_id else None


def best(values: Iterable[float | None]) -> float | None:
    """The largest known value, or None."""
    return max((v for v in values if v is not None), default=None)
