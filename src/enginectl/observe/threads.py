"""Threads of a process from `/proc/PID/task`: state, CPU, run-queue wait, switches, kernel wait place.

Nothing here needs ptrace. Source: proc(5); `schedstat` gives CPU and run-queue time in nanoseconds.
"""

from __future__ import annotations

import os

import msgspec

from enginectl.model.observed import ThreadSample

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessStat(msgspec.Struct, frozen=True, kw_only=True):
    """The line of `/proc/PID/stat`. `start_ticks` with the pid is the process's identity."""

    comm: str
    state: str
    parent_pid: int
    cpu_seconds: float
    start_ticks: int
    rss_bytes: int
    thread_count: int


def _read(path: str) -> bytes | None:
    """The whole of a small file, None when it is gone or refused."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, 65536)
    except OSError:
        return None
    finally:
        os.close(fd)


def process_stat(pid: int) -> ProcessStat | None:
    """The process as `/proc` sees it, or None when it is gone."""
    return _parse_stat(_read(f"/proc/{pid}/stat"))


def _parse_stat(raw: bytes | None) -> ProcessStat | None:
    if not raw or b")" not in raw:
        return None
    head, _, tail = raw.rpartition(b")")
    fields = tail.split()
    return ProcessStat(
        comm=head.partition(b"(")[2].decode(errors="replace"),
        state=fields[0].decode(),
        parent_pid=int(fields[1]),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / CLOCK_TICKS,
        start_ticks=int(fields[19]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
        thread_count=int(fields[17]),
    )


def status_fields(pid: int, tid: int | None = None) -> dict[str, str]:
    """`/proc/PID/status` (or one thread's) as a mapping; empty when it is gone."""
    raw = _read(f"/proc/{pid}/status" if tid is None else f"/proc/{pid}/task/{tid}/status")
    lines = (raw or b"").decode(errors="replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def tracer_pid(pid: int) -> int | None:
    """Pid of the process that traces this one, 0 for nobody, None when it is gone."""
    raw = _read(f"/proc/{pid}/status")
    if raw is None:
        return None
    at = raw.find(b"TracerPid:")
    return int(raw[at + 10 :].split(None, 1)[0]) if at >= 0 else 0


def _switches(raw: bytes | None) -> tuple[int | None, int | None]:
    if not raw:
        return None, None
    at = raw.find(b"voluntary_ctxt_switches:")
    if at < 0:
        return None, None
    words = raw[at:].split()
    return int(words[1]), int(words[3])


def thread_sample(pid: int, tid: int) -> ThreadSample | None:
    """One thread now, or None when it has ended."""
    root = f"/proc/{pid}/task/{tid}/"
    stat = _parse_stat(_read(root + "stat"))
    if stat is None:
        return None
    sched = (_read(root + "schedstat") or b"").split()
    voluntary, involuntary = _switches(_read(root + "status"))
    wchan = (_read(root + "wchan") or b"").decode(errors="replace").strip()
    return ThreadSample(
        tid=tid,
        name=stat.comm,
        os_state=stat.state,
        cpu_seconds=int(sched[0]) / 1e9 if len(sched) > 1 else stat.cpu_seconds,
        runqueue_seconds=int(sched[1]) / 1e9 if len(sched) > 1 else None,
        voluntary_switches=voluntary,
        involuntary_switches=involuntary,
        wchan=wchan if wchan not in ("", "0") else None,
    )


def thread_ids(pid: int) -> tuple[int, ...]:
    """All thread ids of a process, the main thread first; empty when it is gone."""
    try:
        return tuple(sorted((int(t) for t in os.listdir(f"/proc/{pid}/task")), key=lambda t: (t != pid, t)))
    except OSError:
        return ()


def read_threads(pid: int) -> tuple[ThreadSample, ...]:
    """All threads of a process now, the main thread first. Names are the kernel's (15 characters)."""
    samples = (thread_sample(pid, tid) for tid in thread_ids(pid))
    return tuple(sample for sample in samples if sample is not None)


def tids_seen_inside(pid: int) -> dict[int, int]:
    """Thread ids as the process itself knows them -> as seen from here; equal unless it lives in a pid namespace.

    Shape: every thread of the process. Source: the last number of `NSpid` in `/proc/PID/task/TID/status`.
    """
    found: dict[int, int] = {}
    for tid in thread_ids(pid):
        numbers = status_fields(pid, tid).get("NSpid", "").split()
        if numbers:
            found[int(numbers[-1])] = tid
    return found
