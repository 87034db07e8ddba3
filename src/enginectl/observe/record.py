"""Runs the collectors into a Recording: who, then several jittered snapshots, counters at both ends."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec

from enginectl._version import __version__
from enginectl.errors import NoSuchProcess
from enginectl.model.observed import (
    Communicator,
    CounterSample,
    Endpoint,
    Gap,
    GpuSample,
    ProcessFact,
    ProcessSample,
    Recording,
    Snapshot,
    ThreadSample,
)
from enginectl.observe import counters, host, nccl_ras, preflight, process_facts, stacks, target, threads
from enginectl.observe.environment import read_environment
from enginectl.observe.gpu import GpuReader, open_gpus

PATIENCE_FACTOR, PATIENCE_SECONDS = 2.0, 15.0
"""An observation over this many times its duration, and so many seconds more, ends with what it has."""

RETRY_STOP_SNAPSHOTS = 30
"""So many snapshots after a process could not be stopped soon, it is tried again."""

COLLECTIVES_PAUSE_SECONDS = 5.0
"""The collective library is asked about its ranks at most this often: each question goes to all of them."""

Progress = Callable[[str], None]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What to read and for how long. Times in seconds; `url` is the engine's /metrics, found when empty."""

    duration_seconds: float = 2.0
    samples: int = 5
    timeout_seconds: float = 10.0
    native: bool = False
    url: str = ""
    token: str = ""
    gpu: bool = True
    only_pid: bool = False
    redact: bool = True


def _moving_gap(dump: stacks.Dump) -> Gap:
    rows = dump.threads or ()
    torn = stacks.torn(rows)
    words = f"{torn} of its {len(rows)} stacks are torn" if torn else "its stacks may be torn"
    reason = f"it could not be stopped soon and was read while it ran: {words}"
    return Gap(source=f"stacks of {dump.pid}", reason=reason, remedy="")


class _Member(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the tree while it is observed."""

    fact: ProcessFact
    start_ticks: int
    has_stack: bool


class Observation:
    """One engine tree under observation. `extend` adds snapshots; `recording` is what was seen so far."""

    def __init__(
        self,
        pid: int,
        settings: Settings,
        recognise: target.Recognise,
        packages: dict[str, tuple[str, ...]],
        ranks_of: Callable[[str], dict[str, int]],
    ) -> None:
        self._settings = settings
        self._target = pid
        self._began = time.monotonic()
        self._snapshots: list[Snapshot] = []
        self._gaps: list[Gap] = []
        self._redactions: list[str] = []
        self._notes: list[str] = []
        self._moving: dict[int, int] = {}
        self._denied: Gap | None = None
        self._collectives_due = 0.0
        self._memory_readable: bool | None = None
        self._gpus: GpuReader | None = None
        self._url = settings.url
        self._members = self._find_members(recognise, packages, ranks_of)
        self._preflight()
        if settings.gpu:
            self._gpus, gaps = open_gpus()
            self._gaps += gaps
        if not self._url:
            self._url = self._find_url()
        if stacks.may_raise_priority():
            self._notes.append("stack samples were taken at raised priority")

    def _find_members(
        self,
        recognise: target.Recognise,
        packages: dict[str, tuple[str, ...]],
        ranks_of: Callable[[str], dict[str, int]],
    ) -> list[_Member]:
        wanted = target.require(self._target, recognise)
        if wanted.state == "Z":
            raise NoSuchProcess(f"pid {self._target} has exited already; its parent has not collected it yet")
        if self._settings.only_pid:
            tree: Sequence[target.Seen] = (wanted,)
        else:
            tree = target.tree_of(target.list_processes(recognise), self._target)
        members: list[_Member] = []
        for seen in tree:
            stat = threads.process_stat(seen.pid)
            if stat is None:
                continue
            fact, taken = target.fact_of(seen, packages, ranks_of(seen.title), redact=self._settings.redact)
            if taken:
                self._redactions.append(f"command line of pid {seen.pid}")
            if seen.role == "frontend" and (read := read_environment(seen.pid)):
                kept = {name: value for name, value in read[0].items() if name.endswith("_KEEP_ALIVE")}
                fact = msgspec.structs.replace(fact, environment=kept, environment_count=read[1])
            has_stack = seen.role != "helper" and seen.state not in "ZX"
            members.append(_Member(fact=fact, start_ticks=stat.start_ticks, has_stack=has_stack))
        if not members:
            raise NoSuchProcess(f"pid {self._target} exited while being looked at")
        return members

    def _preflight(self) -> None:
        """If attaching will fail, do not try: keep the one gate that is shut and the line that opens it."""
        first = next((m for m in self._members if m.has_stack), None)
        if first is None:
            return
        check = preflight.preflight(first.fact.pid, py_spy=stacks.find_py_spy(), py_spy_version=stacks.py_spy_version())
        self._memory_readable = check.memory_readable
        if not check.can_attach:
            reason = f"{check.reason}. {check.warning}" if check.warning else check.reason
            self._denied = Gap(source="stacks", reason=reason, remedy=check.fix)
            self._gaps.append(self._denied)

    def _pids(self) -> list[int]:
        return [m.fact.pid for m in self._members]

    def _front_pids(self) -> list[int]:
        """Processes that may listen for clients: front ends when known, else the whole tree."""
        fronts = [m.fact.pid for m in self._members if m.fact.role == "frontend"]
        return fronts or self._pids()

    def _find_url(self) -> str:
        url, gaps = counters.find_metrics_url(self._front_pids(), timeout_seconds=3.0)
        self._gaps += gaps
        return url or ""

    # --- snapshots -------------------------------------------------------------------------------------------

    def extend(self, seconds: float, samples: int, progress: Progress | None = None) -> None:
        """Take `samples` more snapshots spread over `seconds`, with jitter, counters at both ends.

        On a host too busy for that, fewer: the whole stays bounded, and a note says so.

        Errors: NoSuchProcess when the process that the user named is gone.
        """
        start = time.monotonic()
        for number in range(samples):
            step = seconds / max(1, samples - 1)
            jitter = random.uniform(-0.2, 0.2) * step if 0 < number < samples - 1 else 0.0
            due = start + number * step + jitter
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            if progress:
                progress(f"sample {number + 1} of {samples}")
            late = number > 0 and time.monotonic() - start > PATIENCE_FACTOR * seconds + PATIENCE_SECONDS
            self._snapshots.append(self._snapshot(with_ends=late or number in (0, samples - 1)))
            if late:
                self._notes.append(f"the host was too busy: {number + 1} of {samples} samples were taken")
                break

    def look_below(self) -> None:
        """One snapshot with native frames, whatever the settings say. Errors: as `extend`."""
        settings = self._settings
        self._settings = msgspec.structs.replace(settings, native=True)
        try:
            self._snapshots.append(self._snapshot(with_ends=True))
        finally:
            self._settings = settings

    def take(self, *, with_ends: bool = True) -> Snapshot:
        """One snapshot now, for callers that keep them: this object remembers the newest one only.

        `with_ends` reads the counters and the slower host facts too. Errors: as `extend`.
        """
        self._snapshots = [*self._snapshots[-1:], self._snapshot(with_ends=with_ends)][-1:]
        return self._snapshots[-1]

    @property
    def began(self) -> float:
        """The monotonic time from which `Snapshot.offset_seconds` counts."""
        return self._began

    def _snapshot(self, *, with_ends: bool) -> Snapshot:
        gaps: list[Gap] = []
        read, endpoint = self._counters(gaps) if with_ends else (None, None)
        with stacks.sampling_priority():
            at = time.monotonic()
            taken_at = datetime.now(UTC).isoformat(timespec="milliseconds")
            before = {m.fact.pid: self._process(m) for m in self._members}
            dumps = self._dump(before, gaps)
        samples = [self._merge(before[m.fact.pid], dumps.get(m.fact.pid)) for m in self._members]
        if with_ends:
            alive = [s.pid for s in samples if s.os_state not in ("X", "Z")]
            front = next((s.pid for s in samples if s.pid in self._front_pids()), None)
            samples, fact_gaps = process_facts.completed(
                samples, alive, clients_of=self._own(alive), ports=self._ports(), front=front
            )
            gaps += fact_gaps
        communicators = self._communicators(gaps) if with_ends else None
        reading, host_gaps = host.read_host(self._members[0].fact.pid) if with_ends else (None, ())
        gaps += host_gaps
        return Snapshot(
            offset_seconds=at - self._began if self._snapshots else self._start(at),
            taken_at=taken_at,
            processes=tuple(samples),
            gpus=self._gpu(gaps),
            counters=read,
            endpoint=endpoint,
            communicators=communicators,
            host=reading,
            gaps=tuple(dict.fromkeys(gaps)),
            pause_seconds=max((d.pause_seconds for d in dumps.values()), default=0.0),
        )

    def _start(self, at: float) -> float:
        self._began = at
        return 0.0

    def _process(self, member: _Member) -> ProcessSample:
        pid = member.fact.pid
        stat = threads.process_stat(pid)
        if stat is None or stat.start_ticks != member.start_ticks:
            if pid == self._target:
                raise NoSuchProcess(f"pid {pid} exited while being observed")
            return ProcessSample(pid=pid, os_state="X")
        rows = threads.read_threads(pid) if stat.state != "Z" else ()
        return ProcessSample(
            pid=pid,
            os_state=stat.state if stat.state in "TtZX" else (rows[0].os_state if rows else stat.state),
            tracer_pid=threads.tracer_pid(pid) or None,
            rss_bytes=stat.rss_bytes,
            cpu_seconds=stat.cpu_seconds,
            threads=rows,
        )

    def _dump(self, before: dict[int, ProcessSample], gaps: list[Gap]) -> dict[int, stacks.Dump]:
        if self._denied is not None:
            return {}
        alive = [
            m.fact.pid for m in self._members if m.has_stack and before[m.fact.pid].os_state not in ("X", "Z", None)
        ]
        # Workers first and by themselves: a worker whose engine core is paused soon looks idle, while a core whose
        # worker was paused still waits for it.
        working = {m.fact.pid for m in self._members if m.fact.role == "worker"}
        dumps: list[stacks.Dump] = []
        for pids in ([p for p in alive if p in working], [p for p in alive if p not in working]):
            dumps += stacks.dump(
                pids,
                timeout_seconds=self._settings.timeout_seconds,
                native=self._settings.native,
                memory_readable=self._memory_readable,
                moving=frozenset(self._moving),
            )
        gaps += self._note_moving(dumps)
        failed = [d for d in dumps if d.gap is not None]
        if len(failed) == len(dumps) or any(d.error == "permission" for d in failed):
            gaps += [d.gap for d in failed if d.gap]
        else:
            # a child that is no Python process, or that ended meanwhile, is no gap of the engine
            gaps += [d.gap for d in failed if d.gap and d.error not in ("not-python", "gone")]
        return {d.pid: d for d in dumps}

    def _note_moving(self, dumps: Sequence[stacks.Dump]) -> list[Gap]:
        """Do not stop again, for some snapshots, what could not be stopped soon; and say that it was read moving."""
        self._moving = {pid: left - 1 for pid, left in self._moving.items() if left > 1}
        for each in dumps:
            if each.moving:
                self._moving.setdefault(each.pid, RETRY_STOP_SNAPSHOTS)
        return [_moving_gap(each) for each in dumps if each.moving]

    @staticmethod
    def _merge(sample: ProcessSample, dump: stacks.Dump | None) -> ProcessSample:
        """Stacks and /proc rows of one process joined by thread id; threads without Python frames are counted."""
        if dump is None or dump.threads is None:
            return sample
        known = {t.tid: t for t in sample.threads}
        foreign = any(thread.tid not in known for thread in dump.threads)
        inside = threads.tids_seen_inside(sample.pid) if foreign else {}
        merged: list[ThreadSample] = []
        for thread in dump.threads:
            row = known.pop(inside.get(thread.tid, thread.tid), None)
            if row is None:
                merged.append(thread)
                continue
            merged.append(
                msgspec.structs.replace(
                    row,
                    name=thread.name or row.name,
                    active=thread.active,
                    holds_gil=thread.holds_gil,
                    frames=thread.frames,
                )
            )
        return msgspec.structs.replace(
            sample,
            threads=tuple(merged),
            native_threads=len(known),
            stack_seconds=dump.wall_seconds,
            moving=dump.moving,
        )

    def _own(self, pids: list[int]) -> list[int]:
        """Processes that are known parts of the engine: a client that lives in the same tree still is a client."""
        known = {m.fact.pid for m in self._members if m.fact.engine is not None}
        if not known:
            return pids
        known.add(self._members[0].fact.pid)  # the program above an engine core is its front end, known or not
        return [pid for pid in pids if pid in known]

    def _ports(self) -> tuple[int, ...] | None:
        """The front end's own port, when its /metrics was found: links inside the engine are no clients."""
        port = urlsplit(self._url).port if self._url else None
        return (port,) if port else None

    def _gpu(self, gaps: list[Gap]) -> tuple[GpuSample, ...] | None:
        if self._gpus is None:
            return None
        samples, gpu_gaps = self._gpus.read(self._pids())
        gaps += gpu_gaps
        return samples

    def _counters(self, gaps: list[Gap]) -> tuple[tuple[CounterSample, ...] | None, Endpoint | None]:
        if not self._url:
            return None, None
        read, endpoint, counter_gaps = counters.read_counters(
            self._url, timeout_seconds=min(2.0, self._settings.timeout_seconds), token=self._settings.token or None
        )
        gaps += counter_gaps
        return read, endpoint

    def _communicators(self, gaps: list[Gap]) -> tuple[Communicator, ...] | None:
        if time.monotonic() < self._collectives_due:
            return None
        found, ras_gaps = nccl_ras.read_communicators(
            [m.fact.pid for m in self._members if m.has_stack], timeout_seconds=min(3.0, self._settings.timeout_seconds)
        )
        self._collectives_due = time.monotonic() + COLLECTIVES_PAUSE_SECONDS
        gaps += ras_gaps
        return found

    def close(self) -> None:
        """Let go of the GPU library."""
        if self._gpus is not None:
            self._gpus.close()
            self._gpus = None

    def recording(self) -> Recording:
        """Everything seen so far."""
        return Recording(
            enginectl_version=__version__,
            target_pid=self._target,
            only_pid=self._settings.only_pid,
            processes=tuple(m.fact for m in self._members),
            snapshots=tuple(self._snapshots),
            redactions=tuple(self._redactions),
            gaps=tuple(self._gaps),
            notes=tuple(self._notes),
            wall_seconds=time.monotonic() - self._began,
        )
