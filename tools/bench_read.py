"""How fast saved dumps are read, in CPU time, and how much memory it takes, per kind of text.

Usage: `python tools/bench_read.py [--megabytes N]`
"""

from __future__ import annotations

import argparse
import io
import time
import tracemalloc
from collections.abc import Callable

from enginectl.read import read

STACK = (
    "wait (threading.py:359)", "get (queue.py:171)", "poll (zmq/sugar/poll.py:106)",
    "dequeue (vllm/distributed/device_communicators/shm_broadcast.py:779)",
    "schedule (vllm/v1/core/sched/scheduler.py:540)",
    "execute_model (vllm/v1/worker/gpu_model_runner.py:3639)", "forward (vllm/model_executor/models/llama.py:218)",
    "run_busy_loop (vllm/v1/engine/core.py:720)", "run (multiprocessing/process.py:108)",
    "_bootstrap (multiprocessing/process.py:314)", "<module> (<string>:1)",
)  # fmt: skip


def pyspy(pid: int) -> str:
    """One process of eight threads as py-spy prints it."""
    lines = [f"Process {pid}: VLLM::Worker_TP{pid % 8}", "Python v3.12.3 (/usr/bin/python3.12)", ""]
    for thread in range(8):
        lines.append(f'Thread {pid * 10 + thread} (idle): "Thread-{thread}"')
        lines += [f"    {STACK[(thread + i) % len(STACK)]}" for i in range(11)]
    return "\n".join(lines) + "\n"


def native(pid: int) -> str:
    """The same with an address that differs on every line."""
    lines = [f"Process {pid}: VLLM::Worker_TP{pid % 8}", "Python v3.12.3 (/usr/bin/python3.12)", ""]
    for thread in range(8):
        lines.append(f'Thread {pid * 10 + thread} (idle): "Thread-{thread}"')
        lines += [f"    0x7f{pid:06x}{thread:02x}{i:02x} (libtorch_cpu.so)" for i in range(11)]
    return "\n".join(lines) + "\n"


def prefixed(pid: int) -> str:
    """With a container time on every line."""
    body = pyspy(pid).splitlines()
    return "".join(f"2026-01-02T03:04:05.{i:09d}Z {line}\n" for i, line in enumerate(body, pid))


def fault(pid: int) -> str:
    """Eight threads as faulthandler prints them."""
    text = "Fatal Python error: Aborted\n\n"
    for thread in range(8):
        frames = "".join(f'  File "/opt/app/mod{(thread + i) % 9}.py", line {i + 3} in run_{i}\n' for i in range(11))
        text += f"Thread 0x00007f{pid:06x}{thread:02x}40 (most recent call first):\n{frames}\n"
    return text


def log(pid: int) -> str:
    """Engine log without any dump."""
    return "".join(
        f"INFO 01-02 03:04:{i % 60:02d} [loggers.py:{i}] request req-{pid}-{i} finished, {i} steps, cache hit\n"
        for i in range(60)
    )


def measure(name: str, render: Callable[[int], str], megabytes: float) -> None:
    """Read that much of one kind and print speed and memory."""
    parts: list[bytes] = []
    size = 0
    while size < megabytes * 1e6:
        parts.append(render(1000 + len(parts)).encode())
        size += len(parts[-1])
    data = b"".join(parts)
    began = time.process_time()
    recording = read([(name, io.BytesIO(data))])
    seconds = time.process_time() - began
    del recording
    tracemalloc.start()
    recording = read([(name, io.BytesIO(data[: 1 << 22]))])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    understood = recording.understood
    frames = understood.frames if understood else 0
    ratio = peak / min(len(data), 1 << 22)
    print(f"{name:10} {len(data) / 1e6 / seconds:7.1f} MB/s  peak {ratio:4.1f} x input  {frames} frames")


def main() -> None:
    """Measure every kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=20.0)
    size = parser.parse_args().megabytes
    for kind in (pyspy, native, prefixed, fault, log):
        measure(kind.__name__, kind, size)


if __name__ == "__main__":
    main()
