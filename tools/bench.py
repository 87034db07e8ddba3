"""`make bench`: what enginectl costs, as ratios taken in one run. Prints Markdown rows for docs/performance.md."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import psutil

from enginectl.cli.demo_process import Demo
from enginectl.cli.pipeline import Recogniser
from enginectl.knowledge.loader import load
from enginectl.observe import children, host, locks, nccl_ras, preflight, shm, sockets, stacks, target, threads
from enginectl.observe.record import Observation, Settings

HEARTBEAT = """
import sys, threading, time
for _ in range(int(sys.argv[1])):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
last = time.perf_counter()
worst = 0.0
while not sys.stdin.closed:
    time.sleep(0.0002)
    now = time.perf_counter()
    worst, last = max(worst, now - last), now
    if sys.stdin in __import__("select").select([sys.stdin], [], [], 0)[0]:
        break
print(worst)
"""


def _median_seconds(run: Callable[[], object], times: int = 9) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def _command(*argv: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-m", "enginectl", *argv], capture_output=True, check=False)


def help_time() -> str:
    """Wall time of `enginectl --help`."""
    script = Path(sys.executable).parent / "enginectl"
    seconds = _median_seconds(lambda: subprocess.run([str(script), "--help"], capture_output=True, check=True))
    return f"| `enginectl --help` | {seconds * 1000:.0f} ms | 150 ms |"


def doctor_ratio(pid: int) -> str:
    """One-sample doctor against one bare dump of the same process, in turn."""
    py_spy = stacks.find_py_spy() or "py-spy"
    ratios = []
    for _ in range(7):
        bare = _median_seconds(
            lambda: subprocess.run([py_spy, "dump", "--json", "--pid", str(pid)], capture_output=True), 3
        )
        whole = _median_seconds(_command("doctor", "--pid", str(pid), "--duration", "0", "--samples", "1", "-q"), 1)
        ratios.append(whole / bare)
    return f"| `doctor --duration 0 --samples 1` / bare `py-spy dump` | {statistics.median(ratios):.1f} × | 15 × |"


def pause(threads: int) -> str:
    """The longest gap in a busy target's heartbeat while it is dumped, less the longest gap without."""

    def worst_gap(dumps: int) -> float:
        child = subprocess.Popen(
            [sys.executable, "-c", HEARTBEAT, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stdin is not None
        child.stdout.readline()
        for _ in range(dumps):
            stacks.dump([child.pid])
        if not dumps:
            time.sleep(0.5)
        out, _ = child.communicate("stop\n")
        return float(out)

    gap = statistics.median(worst_gap(3) for _ in range(3))
    quiet = statistics.median(worst_gap(0) for _ in range(3))
    what = f"longest pause of a target with {threads} threads (quiet: {quiet * 1000:.0f} ms)"
    return f"| {what} | {gap * 1000:.0f} ms | 25 ms |"


TREE = """
import subprocess, sys, threading
children = [subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(int(sys.argv[2]))]
for child in children:
    child.stdout.readline()
print("ready", flush=True)
sys.stdin.read()
for child in children:
    child.stdin.close()
    child.wait()
"""
THREADS = """
import sys, threading
for _ in range(99):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


def _collectors(pids: list[int]) -> list[tuple[str, Callable[[], object]]]:
    """One call of each collector for these processes, by name."""
    return [
        ("processes of the host", lambda: target.list_processes(Recogniser(load()))),
        ("threads", lambda: [threads.read_threads(pid) for pid in pids]),
        ("host", lambda: host.read_host(pids[0])),
        ("file locks", lambda: locks.read_locks(pids)),
        ("shared segments", lambda: shm.shared_segments(pids)),
        ("NCCL RAS, without a listener", lambda: nccl_ras.read_communicators(pids)),
        ("compilers", lambda: children.read_compilers(pids)),
        ("clients", lambda: sockets.read_clients(pids)),
        ("/dev/shm", lambda: [shm.read_shm(pid, others=False) for pid in pids]),
        ("preflight", lambda: preflight.preflight(pids[0], py_spy=stacks.find_py_spy(), py_spy_version="")),
    ]


def without_stacks() -> list[str]:
    """All that needs no ptrace, of ten processes with 100 threads each, and each collector by itself."""
    words = [sys.executable, "-c", TREE, THREADS, "10"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        parent.stdout.readline()
        settings = Settings(duration_seconds=0, samples=1, gpu=False)
        seen = Observation(parent.pid, settings, Recogniser(load()), {}, lambda title: {})
        with mock.patch.object(stacks, "dump", lambda *_, **__: ()):
            whole = _median_seconds(seen.take, 15)
        pids = [process.pid for process in seen.recording().processes]
        rows = [
            f"| one snapshot without stacks, {len(pids)} processes, 1,000 threads | {whole * 1000:.0f} ms | 150 ms |"
        ]
        for name, run in _collectors(pids):
            rows.append(f"| … of it: {name} | {_median_seconds(run, 9) * 1000:.1f} ms | |")
        seen.close()
        parent.stdin.close()
    return rows


def _throughput(demo: Demo, seconds: float) -> float:
    """Requests per second that the demo finishes from now on: what its events count, without what they average."""
    for _ in demo.events(time.monotonic() + 1.2):
        pass  # events that waited in the pipe
    counts = []
    for event in demo.events(time.monotonic() + seconds):
        if event.get("event") == "load":
            counts.append((time.monotonic(), int(event["finished"])))
    (began, first), (ended, last) = counts[0], counts[-1]
    return (last - first) / (ended - began)


def throughput() -> str:
    """Throughput under a continuous 1 Hz doctor against none, in alternating blocks of one run."""
    ratios = []
    with Demo("", "--concurrency", "4") as demo:
        demo.wait_for("load")
        for _ in range(4):
            without = _throughput(demo, 12)
            argv = ["doctor", "--pid", str(demo.pid), "--duration", "12", "--samples", "12", "-q", "--no-confirm"]
            doctor = subprocess.Popen([sys.executable, "-m", "enginectl", *argv], stdout=subprocess.DEVNULL)
            ratios.append(_throughput(demo, 12) / without)
            doctor.wait()
    return f"| throughput of the demo under a 1 Hz doctor / none | {statistics.median(ratios):.1%} | 98 % |"


def top_cost() -> list[str]:
    """What `enginectl top` costs at 1 Hz in a terminal: its CPU with all helpers, and the demo's throughput."""
    ratios, cores = [], []
    with Demo("", "--concurrency", "4") as demo:
        demo.wait_for("load")
        for _ in range(3):
            without = _throughput(demo, 12)
            master, terminal = pty.openpty()
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
            words = [sys.executable, "-m", "enginectl", "top", "--pid", str(demo.pid)]
            with subprocess.Popen(words, stdin=terminal, stdout=terminal, stderr=terminal) as top:
                drain = threading.Thread(target=_drain, args=(master,), daemon=True)
                drain.start()
                time.sleep(5)  # its start is no part of it
                before, began = _cpu_seconds(top.pid), time.monotonic()
                ratios.append(_throughput(demo, 12) / without)
                cores.append((_cpu_seconds(top.pid) - before) / (time.monotonic() - began))
                top.terminate()
                top.wait(20)
            os.close(terminal)
            drain.join(10)
            os.close(master)
    return [
        f"| throughput of the demo under `top` / none | {statistics.median(ratios):.1%} | no loss |",
        f"| CPU of `top` at 1 Hz, its py-spy runs included | {statistics.median(cores):.1%} of a core | 3 % |",
    ]


def _drain(master: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(master, 65536):
            pass


def _cpu_seconds(pid: int) -> float:
    """CPU of a process and of its children that have ended."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def main() -> int:
    """Run everything and print the table."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, py-spy {stacks.py_spy_version()}\n")
    print("| what | measured | wanted |\n| --- | --- | --- |")
    print(help_time(), flush=True)
    with Demo("", "--concurrency", "2") as demo:
        demo.wait_for("load")
        print(doctor_ratio(demo.pid), flush=True)
    print(pause(64), flush=True)
    print("\n".join(without_stacks()), flush=True)
    print(throughput(), flush=True)
    print("\n".join(top_cost()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
