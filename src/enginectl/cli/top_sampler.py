"""One attached engine for `top`: looks at the stacks, light reads of the clocks in between, a sliding window."""

from __future__ import annotations

import threading
import time
from collections import deque

import msgspec

from enginectl.cli import pipeline
from enginectl.cli.top_facts import Node, Reading, classes_of, model_of, rates
from enginectl.errors import NoSuchProcess
from enginectl.knowledge.loader import Knowledge
from enginectl.model.diagnosed import Diagnosis
from enginectl.model.observed import CounterSample, ProcessFact, Recording, Snapshot
from enginectl.observe import stacks, threads
from enginectl.observe.record import Settings
from enginectl.top.moment import NativeSample, Trouble

WINDOW_SECONDS = 15.0
LEAST_LOOKS = 5
"""The verdict rests on the last `WINDOW_SECONDS`, and on so many looks when these are further apart."""
COUNTERS_SECONDS = 3.0
FIRST_OPEN_LOOKS = 3
"""Before so many looks an open verdict says nothing but that it is early."""
KEPT_SECONDS = 180.0


class Sampler:
    """Reads one engine tree. `look` reads stacks, `light` only clocks; `diagnosis` is the newest one.

    Errors: NoSuchProcess and NotAnEngine when it cannot be attached; NoSuchProcess when it has ended.
    """

    def __init__(self, pid: int, settings: Settings, knowledge: Knowledge) -> None:
        self.pid = pid
        self.looks = 0
        self.pause_seconds = 0.0
        self.diagnosis: Diagnosis | None = None
        self._knowledge = knowledge
        self._observation = pipeline.observation(pid, settings, knowledge)
        self._kept: deque[Snapshot] = deque()
        self._counters: tuple[CounterSample, ...] = ()
        self._counters_at = float("-inf")
        self._before: dict[Node, Reading] = {}
        self._one_at_a_time = threading.Lock()

    @property
    def processes(self) -> tuple[ProcessFact, ...]:
        """Who is watched, the top parent first."""
        return self._observation.recording().processes

    @property
    def model(self) -> str:
        """The model's name, empty when it is not told."""
        return model_of(self.processes, self._counters)

    def look(self) -> dict[Node, str] | None:
        """Read the stacks of every process, and every few seconds counters and host facts too; then diagnose anew.

        Shape: the wait class of each thread now, None when no stack could be read.
        """
        with_ends = time.monotonic() - self._counters_at >= COUNTERS_SECONDS or self.looks < LEAST_LOOKS
        with self._one_at_a_time:
            snapshot = self._observation.take(with_ends=with_ends)
        self.looks += 1
        self.pause_seconds = snapshot.pause_seconds
        self._kept.append(snapshot)
        while self._kept[0].offset_seconds < snapshot.offset_seconds - KEPT_SECONDS:
            self._kept.popleft()
        if with_ends:
            self._counters_at = time.monotonic()
            self._counters = snapshot.counters or self._counters
            new = pipeline.diagnosed(self._window(), self._knowledge)
            if self.looks >= FIRST_OPEN_LOOKS or new.verdict.outcome == "decided":
                self.diagnosis = new
        return classes_of(self._observation.recording(), snapshot, self._knowledge)

    def _window(self) -> Recording:
        kept = tuple(self._kept)
        recent = [s for s in kept if s.offset_seconds > kept[-1].offset_seconds - WINDOW_SECONDS]
        return self._recording(kept[-max(LEAST_LOOKS, len(recent)) :])

    def _recording(self, snapshots: tuple[Snapshot, ...]) -> Recording:
        wall = snapshots[-1].offset_seconds - snapshots[0].offset_seconds if snapshots else 0.0
        return msgspec.structs.replace(self._observation.recording(), snapshots=snapshots, wall_seconds=wall)

    def kept(self) -> Recording:
        """The last minutes as a recording."""
        return self._recording(tuple(self._kept))

    def light(self) -> tuple[dict[Node, float], dict[Node, float], dict[int, str]]:
        """CPU and run-queue rates of the Python threads since the last call, and process states, from `/proc` only."""
        states: dict[int, str] = {}
        for fact in self.processes:
            stat = threads.process_stat(fact.pid)
            if stat is None and fact.pid == self.pid:
                raise NoSuchProcess(f"pid {fact.pid} exited while being observed")
            states[fact.pid] = stat.state if stat else "X"
        readings: dict[Node, Reading] = {}
        newest = self._kept[-1].processes if self._kept else ()
        for process in newest:
            for thread in process.threads:
                now = threads.thread_sample(process.pid, thread.tid) if thread.frames is not None else None
                if now is not None:
                    readings[process.pid, thread.tid] = (time.monotonic(), now.cpu_seconds, now.runqueue_seconds)
        cpu, runqueue = rates(self._before, readings)
        self._before = readings
        return cpu, runqueue, states

    def trouble(self) -> Trouble | None:
        """Why stacks cannot be read, if they cannot."""
        newest = self._kept[-1].gaps if self._kept else ()
        gaps = (*self._observation.recording().gaps, *newest)
        found = next((gap for gap in gaps if gap.source == "stacks"), None)
        return Trouble(text=found.reason, fix=found.remedy) if found else None

    def native(self, pid: int) -> NativeSample:
        """One dump of one process with native frames, never at the same time as another one."""
        with self._one_at_a_time:
            dump = stacks.dump([pid], timeout_seconds=20.0, native=True)[0]
        if dump.threads is None:
            return NativeSample(trouble=dump.gap.reason if dump.gap else "no stack was read")
        if not dump.native:
            return NativeSample(trouble="native frames could not be read; the Python stack is under enter")
        lines = {
            t.tid: tuple(f"{f.function} ({f.file}{f':{f.line}' if f.line else ''})" for f in t.frames or ())
            for t in dump.threads
        }
        return NativeSample(threads=lines, pause_seconds=dump.pause_seconds)

    def close(self) -> None:
        """Let go of what the observation holds."""
        self._observation.close()
