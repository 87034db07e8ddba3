"""What the processes need of Linux: names of threads, death with the parent, and thread clocks from /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int, signal_number: int = signal.SIGTERM) -> None:
    """Have the kernel send `signal_number` when the parent ends; at once if it has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number)
    if parent_pid and os.getppid() != parent_pid:
        os.kill(os.getpid(), signal_number)


def start_named_thread(name: str, target: Callable[[], None], daemon: bool = True) -> threading.Thread:
    """Start a thread whose Python name and kernel name (comm, 15 characters) are both `name`."""

    thread = threading.Thread(target=_NamedTarget(name, target), name=name, daemon=daemon)
    thread.start()
    return thread


class _NamedTarget:
    def __init__(self, name: str, target: Callable[[], None]) -> None:
        self.name, self.target = name, target

    def __call__(self) -> None:
        with contextlib.suppress(OSError):
            Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(self.name[:15])
        self.target()


@dataclass(frozen=True, slots=True)
class ThreadClock:
    """One thread's counters: state letter, CPU and run-queue seconds, context switches so far."""

    state: str
    cpu_seconds: float
    runqueue_seconds: float
    switches: int


def read_threads(pid: int) -> dict[str, ThreadClock]:
    """Counters of the threads of a process by comm (the first thread of a name); empty when it is gone."""
    clocks: dict[str, ThreadClock] = {}
    try:
        tasks = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda task: int(task.name))
    except OSError:
        return clocks
    for task in tasks:
        try:
            name = (task / "comm").read_text().strip()
            clocks.setdefault("MainThread" if task.name == str(pid) else name, _read_thread(task))
        except OSError:
            continue
    return clocks


def _read_thread(task: Path) -> ThreadClock:
    running, waiting, _ = (task / "schedstat").read_text().split()
    status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
    switches = int(status["voluntary_ctxt_switches"]) + int(status["nonvoluntary_ctxt_switches"])
    return ThreadClock(status["State"][0], int(running) / 1e9, int(waiting) / 1e9, switches)
