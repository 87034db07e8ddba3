"""Engines to look at: moments made from hand-built diagnoses, one a second, and feeds that hand them out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import msgspec
from tests.render.builders import core_row, diagnosis, found, frontend_row, process, thread, told
from tests.render.situations import DIAGNOSES

from enginectl.model.diagnosed import Diagnosis
from enginectl.model.observed import GpuSample, ProcessFact
from enginectl.top.app import Top
from enginectl.top.moment import Choice, Moment, NativeSample, Pace, Publish, Sources, Trouble

SECONDS = 60
FAULT_AT = 40
PACE = Pace(stack_seconds=2.1, own_cpu_ratio=0.024, pause_seconds=0.011)
PAGE = "# vllm.core.input-queue\n\nThe engine loop waits for a request.\n"


def facts(of: Diagnosis) -> tuple[ProcessFact, ...]:
    """The processes of a diagnosis, all below the first one, started 130 minutes before."""
    root = of.processes[0].pid if of.processes else None
    return tuple(
        ProcessFact(pid=p.pid, title=p.title, role=p.role, parent_pid=None if p.pid == root else root, started_at=0.0)
        for p in of.processes
    )


def moment(at: float, of: Diagnosis, classes: dict[tuple[int, int], str] | None = None, **more: object) -> Moment:
    """One second of an engine; the wait classes are those of the diagnosis unless given."""
    seen = {(p.pid, t.tid): t.wait_class for p in of.processes for t in p.threads}
    clock = f"1970-01-01T{(7800 + int(at)) // 3600:02d}:{(7800 + int(at)) // 60 % 60:02d}:{int(at) % 60:02d}.000+00:00"
    states = {p.pid: p.os_state for p in of.processes}
    # a worker that was stopped carries the state on its thread
    states |= {p.pid: t.os_state for p in of.processes for t in p.threads if t.os_state == "T"}
    fields = {"os_states": states, "processes": facts(of), "model": "Qwen/Qwen3-0.6B", "pace": PACE} | more
    return Moment(at=at, taken_at=clock, diagnosis=of, classes=seen | (classes or {}), **fields)


def story(name: str, before: str = "idle") -> list[Moment]:
    """A minute: `before` until `FAULT_AT`, then the named situation."""
    fault = DIAGNOSES[name]()
    first = DIAGNOSES[before]()
    healthy = msgspec.structs.replace(first, processes=fault.processes, chain=(), gaps=fault.gaps)
    loops = {
        (p.pid, t.tid): "cpu" for p in fault.processes for t in p.threads if t.role in ("engine-loop", "worker-loop")
    }
    return [
        moment(float(at), healthy, loops if at % 4 else None) if at < FAULT_AT else moment(float(at), fault)
        for at in range(SECONDS)
    ]


def gone() -> list[Moment]:
    """The engine ends in the last five seconds."""
    trouble = Trouble(
        text="pid 4310 exited while being observed; waiting for it to come back", fix="looked for by name"
    )
    moments = story("compute-bound", "compute-bound")
    return [
        *moments[:-5],
        *(msgspec.structs.replace(m, gone=True, trouble=trouble, classes=None) for m in moments[-5:]),
    ]


def many_ranks() -> list[Moment]:
    """Eight ranks on eight GPUs; rank 5 stands outside the collective that the others wait in."""
    hang = DIAGNOSES["collective-hang"]()
    workers = tuple(
        process(
            5000 + rank,
            "worker",
            f"VLLM::Worker_TP{rank}",
            thread(
                5000 + rank,
                "MainThread",
                "worker-loop",
                "vllm.worker.input-queue" if rank == 5 else "torch.nccl.all-reduce",
                "peer" if rank == 5 else "collective",
                cpu_ratio=0.0 if rank == 5 else 1.0,
            ),
            *(
                thread(6000 + rank * 10 + n, f"Thread-{n} (copy)", "async-output-copy", "python.queue.get", "idle")
                for n in (1, 2)
            ),
            rank=rank,
        )
        for rank in range(8)
    )
    gpus = tuple(
        GpuSample(
            index=rank,
            utilization_percent=0.0 if rank == 5 else 100.0,
            power_watts=92.0 if rank == 5 else 121.0,
            power_limit_watts=700.0,
            memory_used_bytes=121 << 30,
            memory_total_bytes=141 << 30,
        )
        for rank in range(8)
    )
    culprit = msgspec.structs.replace(hang.verdict.culprit, pid=5005, tid=5005, rank=5)
    summary = "Seven of eight ranks stand in an all-reduce; rank 5 never entered it and waits for its next step."
    verdict = msgspec.structs.replace(hang.verdict, culprit=culprit, summary=summary)
    of = msgspec.structs.replace(
        hang,
        verdict=verdict,
        processes=(
            frontend_row(),
            core_row(thread(4321, "MainThread", "engine-loop", "vllm.core.wait-worker", "peer")),
            *workers,
        ),
        gpus=gpus,
        engine_counters={
            "running": 32,
            "waiting": 118,
            "kv_usage_ratio": 0.81,
            "tokens_per_second": 0,
            "frozen_seconds": 14,
        },
    )
    return [moment(float(at), of) for at in range(SECONDS)]


def hostile_names() -> list[Moment]:
    """Names chosen by somebody who wants to write on the terminal."""
    loop = thread(11, "\x1b[2J\x1b]0;owned\x07loop", "engine-loop", "\x1b[31mx", "cpu", "\u202egnp.exe")
    verdict = told("busy", "busy", "EC104", "All \x1b[5mgood\x07.")
    rows = (process(10, "engine-core", "\x1b[31mVLLM\n", loop, engine="vl\x1blm"),)
    return [moment(1.0, diagnosis(verdict, found(verdict, "info"), processes=rows), model="[bold]m\x1b[0m")]


class Canned:
    """A feed that publishes its moments at once."""

    def __init__(self, moments: Sequence[Moment], *, live: bool = True) -> None:
        self.live = live
        self.moments = moments
        self.native_calls: list[int] = []

    def run(self, publish: Publish, stop: threading.Event) -> None:
        for one in self.moments:
            publish(one)

    def native(self, pid: int) -> NativeSample:
        self.native_calls.append(pid)
        frames = (
            "std::vector<int, std::allocator<int>>::at(int) const (/usr/lib/libcuda.so.1)",
            "step (vllm/v1/engine/core.py:402)",
        )
        return NativeSample(threads={tid: frames for tid in range(4300, 4400)}, pause_seconds=0.21)


def app(
    moments: Sequence[Moment],
    *,
    live: bool = True,
    choices: Sequence[Choice] = (),
    record: Callable[[object], str] | None = None,
) -> Top:
    """The application on a canned feed, with a clock that stands still."""
    sources = Sources(
        choices=lambda: tuple(choices),
        attach=lambda pid: Canned(moments, live=live),
        page=lambda _: PAGE,
        record=record,
    )
    return Top(sources, pid=None if choices else 1, clock=lambda: 0.0)


async def settled(pilot: object) -> None:
    """All moments have arrived and are drawn."""
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()
    await pilot.pause()
