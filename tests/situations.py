"""Small recordings built by hand: processes with threads whose stacks are given as `file:function` texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from enginectl.model.observed import (
    CounterSample,
    Frame,
    GpuSample,
    ProcessFact,
    ProcessSample,
    Recording,
    Snapshot,
    ThreadSample,
)

LOOP = ("engine_core/loop.py:step", "engine_core/loop.py:_process_engine_step", "engine_core/loop.py:run_busy_loop")
LOOP_IDLE = (
    "threading.py:wait", "queue.py:get", "engine_core/loop.py:_process_input_queue", "engine_core/loop.py:run_busy_loop",
)  # fmt: skip
FORWARD = (
    "torch/nn/modules/linear.py:forward", "engine_core/model.py:_model_forward", "engine_core/model.py:execute_model",
    *LOOP,
)  # fmt: skip
SCHEDULE = ("engine_core/scheduler.py:_sort_waiting", "engine_core/scheduler.py:schedule", *LOOP)
YIELD = ("engine_core/loop.py:_yield_empty_step", *LOOP[1:])
OUTPUT_IDLE = ("threading.py:wait", "queue.py:get", "engine_core/output.py:run")
IPC_IDLE = ("zmq/sugar/poll.py:poll", "engine_core/ipc.py:_poll", "engine_core/ipc.py:run")


@dataclass
class T:
    """One thread. `cpu` is cores used, `runqueue` the share of time runnable; several stacks alternate."""

    name: str
    stacks: Sequence[Sequence[str]]
    cpu: float = 0.0
    runqueue: float = 0.0
    gil: float = 0.0
    state: str = "S"
    tid: int = 0


@dataclass
class P:
    """One process with its threads; `title` decides what it is recognised as."""

    pid: int
    title: str
    threads: list[T] = field(default_factory=list)
    state: str = "S"
    parent: int | None = None
    command: tuple[str, ...] = ()


def engine(loop: T, output: T | None = None, ipc: T | None = None, **more: Any) -> P:
    """The bundled engine's core process; roles that are not given rest."""
    rest = [output or T("OutputProcessor", [OUTPUT_IDLE]), ipc or T("IPCLoop", [IPC_IDLE])]
    return P(pid=100, title="engine_core", threads=[loop, *rest], **more)


def frames(texts: Sequence[str], line: int) -> tuple[Frame, ...]:
    """`file:function` texts as frames, all on one line number."""
    return tuple(Frame(function=t.rpartition(":")[2], file=t.rpartition(":")[0], line=line) for t in texts)


def _thread(process: P, index: int, thread: T, number: int, at: float, samples: int) -> ThreadSample:
    stack = thread.stacks[number % len(thread.stacks)]
    holds = number < round(thread.gil * samples)
    return ThreadSample(
        tid=thread.tid or process.pid + index,
        name=thread.name,
        os_state=thread.state,
        cpu_seconds=thread.cpu * at,
        runqueue_seconds=thread.runqueue * at,
        voluntary_switches=number,
        holds_gil=holds,
        active=thread.state == "R",
        frames=frames(stack, 1),
    )


def recording(
    *processes: P,
    samples: int = 5,
    seconds: float = 2.0,
    counters: Sequence[dict[str, float]] = (),
    gpus: Sequence[GpuSample] = (),
    device: str = "cpu",
    **more: Any,
) -> Recording:
    """A recording of these processes. `counters` holds two reads, at the ends of the window."""
    snapshots = []
    for number in range(samples):
        at = seconds * number / max(1, samples - 1)
        ends = {0: 0, samples - 1: -1}
        read = counters[ends[number]] if counters and number in ends else None
        rows = tuple(CounterSample(name=k, value=v) for k, v in read.items()) if read is not None else None
        if rows is not None and device:
            rows += (CounterSample(name="engine_core:model_info", value=1.0, labels={"device": device}),)
        snapshots.append(
            Snapshot(
                offset_seconds=at,
                processes=tuple(
                    ProcessSample(
                        pid=p.pid,
                        os_state=p.state,
                        threads=tuple(_thread(p, i, t, number, at, samples) for i, t in enumerate(p.threads)),
                    )
                    for p in processes
                ),
                counters=rows,
                gpus=tuple(gpus) or None,
            )
        )
    facts = tuple(ProcessFact(pid=p.pid, title=p.title, parent_pid=p.parent, command=p.command) for p in processes)
    return Recording(processes=facts, snapshots=tuple(snapshots), **more)


def counters(
    running: float = 0, waiting: float = 0, steps: float = 0, tokens: float = 0, **more: float
) -> dict[str, float]:
    """One read of the engine's counters under their exported names."""
    base = {
        "vllm:num_requests_running": running,
        "vllm:num_requests_waiting": waiting,
        "vllm:iteration_tokens_total_count": steps,
        "vllm:generation_tokens_total": tokens,
    }
    names = {
        "preemptions": "vllm:num_preemptions_total",
        "kv": "vllm:kv_cache_usage_perc",
        "finished": "vllm:request_success_total",
    }
    return base | {names[k]: v for k, v in more.items()}
