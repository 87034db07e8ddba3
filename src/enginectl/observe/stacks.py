"""Python stacks through py-spy, run as a bounded child process: the only door to it.

py-spy attaches with ptrace and stops the target while it reads. Every run has a time limit; when it is over,
the helper's whole process group is killed, which detaches it. After each run the target is checked, and resumed
if the helper left it stopped. Source: `py-spy dump --json`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from enginectl.model.observed import Frame, Gap, ThreadSample
from enginectl.observe import threads
from enginectl.observe.preflight import classify_attach_error

POLL_SECONDS = 0.001
MAX_PAUSE_SECONDS, MAX_NATIVE_PAUSE_SECONDS = 1.5, 5.0
MIN_TRACED_LOOKS = 50
"""A target that stands still for longer is let go, and read without stopping it."""
PR_SET_PDEATHSIG = 1


class _RawFrame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0
    short_filename: str | None = None
    module: str | None = None


class _RawThread(msgspec.Struct):
    pid: int
    thread_id: int
    frames: list[_RawFrame]
    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool = False
    owns_gil: bool = False


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """What one dump of one process gave.

    `threads` is None when the dump failed; `gap` then says why, `error` names the class of the failure.
    `pause_seconds` is an upper bound on how long the target stood still. `moving` says that it was read without being
    stopped, because stopping it took too long: its stacks may be torn.
    """

    pid: int
    threads: tuple[ThreadSample, ...] | None
    pause_seconds: float
    wall_seconds: float
    error: str = ""
    gap: Gap | None = None
    native: bool = False
    moving: bool = False


@functools.lru_cache(maxsize=1)
def find_py_spy() -> str | None:
    """Path of the py-spy that belongs to this installation, else one on PATH, else None."""
    beside = Path(sys.executable).parent / "py-spy"
    if os.access(beside, os.X_OK):
        return str(beside)
    return shutil.which("py-spy")


@functools.lru_cache(maxsize=1)
def py_spy_version() -> str:
    """`0.4.3`, or an empty string when it cannot be run."""
    path = find_py_spy()
    if path is None:
        return ""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().rpartition(" ")[2]


_LIBC = ctypes.CDLL(None, use_errno=True)


NICE = -10


@functools.lru_cache(maxsize=1)
def may_raise_priority() -> bool:
    """Whether this process may raise the priority of its sampling within the ordinary scheduling class."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
        os.setpriority(os.PRIO_PROCESS, 0, before)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def sampling_priority() -> Iterator[None]:
    """Raise the priority of this thread while it samples, where that is permitted.

    A spinning engine on few cores can keep the observer off its core for seconds. Moderately, and never
    by a real-time class: reading the symbols of a large process can take seconds of CPU.
    """
    if not may_raise_priority():
        yield
        return
    me = threading.get_native_id()
    before = os.getpriority(os.PRIO_PROCESS, me)
    os.setpriority(os.PRIO_PROCESS, me, NICE)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, me, before)


def _child_setup() -> None:
    """In the child, before py-spy starts: dies with its parent, and has the priority of who samples.

    Its session is its own, and with it its autogroup: a nice value counts between groups only when the group has it.
    """
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if may_raise_priority():
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, NICE)
            with open("/proc/self/autogroup", "wb", buffering=0) as file:
                file.write(str(NICE).encode())


class _Run:
    """One py-spy child while it runs."""

    def __init__(self, py_spy: str, pid: int, *, native: bool, nonblocking: bool, memory_readable: bool | None) -> None:
        argv = [py_spy, "dump", "--json", "--full-filenames", "--pid", str(pid)]
        argv += ["--native"] if native else []
        argv += ["--nonblocking"] if nonblocking else []
        self.pid = pid
        self.native = native
        self.nonblocking = nonblocking
        self.memory_readable = memory_readable
        self.was = threads.process_stat(pid)
        self.out: IO[bytes] = tempfile.TemporaryFile()
        self.err: IO[bytes] = tempfile.TemporaryFile()
        self.began = time.monotonic()
        self.child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=self.err,
            start_new_session=True,
            preexec_fn=_child_setup,
        )
        self.ended: float | None = None
        self.timed_out = False
        self._untraced = self.began
        self._traced_looks = 0
        self.pause = 0.0

    def poll(self) -> bool:
        """Whether the child has ended. Widens the bound on the target's pause meanwhile."""
        if self.ended is not None:
            return True
        done = self.child.poll() is not None
        tracer = threads.tracer_pid(self.pid)
        now = time.monotonic()
        self._traced_looks = self._traced_looks + 1 if tracer else 0
        if not tracer or done:
            self.pause = max(self.pause, now - self._untraced)
            self._untraced = now
        if done:
            self.ended = now
        return done

    def held_longer_than(self, seconds: float) -> bool:
        """Whether the target has stood still for so long, seen often: one late look of ours proves nothing."""
        return self._traced_looks >= MIN_TRACED_LOOKS and time.monotonic() - self._untraced > seconds

    def kill(self) -> None:
        """End the helper and its group; the kernel detaches it from the target."""
        self.timed_out = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.poll()

    def close(self) -> tuple[bytes, str]:
        self.out.seek(0)
        self.err.seek(0)
        out, err = self.out.read(), self.err.read(65536).decode(errors="replace")
        self.out.close()
        self.err.close()
        return out, err


def _resume_if_left_stopped(run: _Run) -> None:
    """Undo a stop that our helper left behind: never one that was there before."""
    now = threads.process_stat(run.pid)
    if now and run.was and now.state == "T" and run.was.state not in "Tt" and now.start_ticks == run.was.start_ticks:
        with contextlib.suppress(OSError):
            os.kill(run.pid, signal.SIGCONT)


def _to_samples(raw: bytes) -> tuple[ThreadSample, ...]:
    rows = msgspec.json.decode(raw, type=list[_RawThread])
    rows.sort(key=lambda r: r.os_thread_id or r.thread_id)
    return tuple(
        ThreadSample(
            tid=row.os_thread_id or row.thread_id,
            name=row.thread_name,
            active=row.active,
            holds_gil=row.owns_gil,
            frames=tuple(
                Frame(function=f.name, file=f.filename, line=f.line or None, native=_is_native(f)) for f in row.frames
            ),
        )
        for row in rows
    )


def _is_native(frame: _RawFrame) -> bool:
    """Whether a frame lies below Python: its file is a library or a C source, with or without a line."""
    return frame.name != "<module>" and not frame.filename.endswith((".py", ">"))


ROOT_FUNCTIONS = frozenset({"<module>", "_run_module_as_main", "_bootstrap"})
"""Where a Python stack begins: a module that is run, or the start of a thread. A thread made in C begins elsewhere."""


def torn(rows: Sequence[ThreadSample]) -> int:
    """How many of these stacks do not begin at a known root: read while the thread ran, they may lack their callers.

    They are kept: a thread without a stack would look like one that rests.
    """
    roots = [row.frames[-1].function.rpartition(".")[2] for row in rows if row.frames]
    return sum(root not in ROOT_FUNCTIONS for root in roots)


def _finish(run: _Run, limit: float) -> Dump:
    out, err = run.close()
    _resume_if_left_stopped(run)
    wall = (run.ended or time.monotonic()) - run.began
    pause = 0.0 if run.nonblocking else run.pause
    if run.timed_out:
        reason = f"py-spy did not answer within {limit:g} s and was ended"
        gap = Gap(source="stacks", reason=reason, remedy="run it again; the host may be overloaded")
        return Dump(pid=run.pid, threads=None, pause_seconds=pause, wall_seconds=wall, error="timeout", gap=gap)
    if run.child.returncode == 0:
        with contextlib.suppress(msgspec.DecodeError):
            rows = _to_samples(out)
            return Dump(pid=run.pid, threads=rows, pause_seconds=pause, wall_seconds=wall, native=run.native)
    status = threads.status_fields(os.getpid())
    kind, message = classify_attach_error(
        err,
        run.child.returncode,
        uid=os.geteuid(),
        caps=int(status.get("CapEff", "0"), 16),
        tracer_pid=threads.tracer_pid(run.pid),
        memory_readable=run.memory_readable,
    )
    gap = Gap(source="stacks", reason=f"pid {run.pid}: {message}", remedy="")
    return Dump(pid=run.pid, threads=None, pause_seconds=pause, wall_seconds=wall, error=kind, gap=gap)


def _start(pid: int, native: bool, frozen: bool, py_spy: str, memory_readable: bool | None) -> _Run | Dump:
    try:
        return _Run(py_spy, pid, native=native, nonblocking=frozen, memory_readable=memory_readable)
    except OSError as error:
        gap = Gap(source="stacks", reason=f"py-spy cannot be started: {error}", remedy="pip install py-spy")
        return Dump(pid=pid, threads=None, pause_seconds=0.0, wall_seconds=0.0, error="no-tool", gap=gap)


def dump(
    pids: Sequence[int],
    *,
    timeout_seconds: float = 10.0,
    native: bool = False,
    memory_readable: bool | None = None,
    moving: frozenset[int] = frozenset(),
) -> tuple[Dump, ...]:
    """One dump of each process, a few at a time, each bounded by `timeout_seconds`.

    A stopped or traced target is read without stopping it: its threads stand still anyway. So are those in `moving`,
    and those that cannot be stopped soon: every thread has to run to be stopped, and one that spins and yields may
    not get a core for a minute while the others stand still already. A native dump that fails is repeated without
    native frames.  Errors: none; a failed dump carries its Gap.
    """
    py_spy = find_py_spy()
    if py_spy is None:
        gap = Gap(source="stacks", reason="py-spy is not installed", remedy="pip install py-spy")
        return tuple(
            Dump(pid=p, threads=None, pause_seconds=0.0, wall_seconds=0.0, error="no-tool", gap=gap) for p in pids
        )
    results: dict[int, Dump] = {}
    waiting = list(pids)
    unstopped = set(moving)
    running: list[_Run] = []
    paused: dict[int, float] = {}
    limit = MAX_NATIVE_PAUSE_SECONDS if native else MAX_PAUSE_SECONDS
    width = max(2, (os.cpu_count() or 2))
    while waiting or running:
        while waiting and len(running) < width:
            pid = waiting.pop(0)
            stat = threads.process_stat(pid)
            frozen = stat is not None and (stat.state in "Tt" or bool(threads.tracer_pid(pid)))
            began = _start(pid, native and pid not in unstopped, frozen or pid in unstopped, py_spy, memory_readable)
            if isinstance(began, Dump):
                results[pid] = began
            else:
                running.append(began)
        for run in list(running):
            if not run.poll() and not run.nonblocking and run.held_longer_than(limit):
                run.kill()
                running.remove(run)
                unstopped.add(run.pid)
                paused[run.pid] = run.pause
                _finish(run, timeout_seconds)
                waiting.insert(0, run.pid)
                continue
            if run.ended is None and time.monotonic() - run.began > timeout_seconds:
                run.kill()
            if run.ended is not None:
                running.remove(run)
                done = _finish(run, timeout_seconds)
                if run.pid in unstopped:
                    pause = max(done.pause_seconds, paused.get(run.pid, 0.0))
                    done = msgspec.structs.replace(done, moving=True, pause_seconds=pause)
                results[run.pid] = done
        time.sleep(POLL_SECONDS)
    failed = [p for p in pids if native and results[p].error in ("native-merge", "threads-ids", "timeout", "other")]
    if failed:
        for fallback in dump(failed, timeout_seconds=timeout_seconds, moving=frozenset(unstopped)):
            before = results[fallback.pid].pause_seconds
            results[fallback.pid] = msgspec.structs.replace(
                fallback, pause_seconds=max(before, fallback.pause_seconds), moving=fallback.pid in unstopped
            )
    return tuple(results[p] for p in pids)
