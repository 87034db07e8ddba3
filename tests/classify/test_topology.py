"""Whom a thread waits for: of equally near processes the one that shares memory with it."""

from __future__ import annotations

import pytest

from enginectl.classify.topology import topology
from enginectl.knowledge.loader import load
from enginectl.model.observed import Frame, ProcessFact, ProcessSample, Recording, Snapshot, ThreadSample

CORE = (
    ("dequeue", "vllm/distributed/device_communicators/shm_broadcast.py"),
    ("get_response", "vllm/v1/executor/multiproc_executor.py"),
    ("collective_rpc", "vllm/v1/executor/multiproc_executor.py"),
    ("execute_model", "vllm/v1/executor/multiproc_executor.py"),
    ("step", "vllm/v1/engine/core.py"),
    ("run_busy_loop", "vllm/v1/engine/core.py"),
)
WORKER = (
    ("forward", "vllm/model_executor/models/qwen3.py"),
    ("execute_model", "vllm/v1/worker/gpu_model_runner.py"),
    ("worker_busy_loop", "vllm/v1/executor/multiproc_executor.py"),
)


def sample(pid: int, stack: tuple[tuple[str, str], ...], *segments: str) -> ProcessSample:
    frames = tuple(Frame(function=function, file=file) for function, file in stack)
    thread = ThreadSample(tid=pid, name="MainThread", frames=frames, active=True)
    return ProcessSample(pid=pid, os_state="S", threads=(thread,), shared_segments=segments)


@pytest.mark.parametrize("ring", [31, 32])
def test_a_core_waits_for_the_worker_at_the_other_end_of_its_ring(ring: int) -> None:
    facts = [ProcessFact(pid=10, title="VLLM::EngineCore", engine="vllm", role="engine-core", parent_pid=1)]
    facts += [
        ProcessFact(pid=pid, title="ray::RayWorkerProc", engine="vllm", role="worker", parent_pid=2) for pid in (31, 32)
    ]
    rows = [sample(10, CORE, "psm_a")] + [sample(pid, WORKER, "psm_a" if pid == ring else "psm_b") for pid in (31, 32)]
    seen = topology(
        Recording(processes=tuple(facts), snapshots=(Snapshot(offset_seconds=0.0, processes=tuple(rows)),)), load()
    )
    (edge,) = [e for e in seen.edges if e.waiter == (10, 10)]
    assert edge.actor == (ring, ring)
