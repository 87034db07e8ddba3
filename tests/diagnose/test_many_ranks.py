"""Hundreds of ranks in one dump: equal stacks are bucketed, and the odd ones are named."""

from __future__ import annotations

import io

from enginectl.diagnose.diagnose import diagnose
from enginectl.knowledge.loader import load
from enginectl.model.observed import StatedFacts, StatedProgress
from enginectl.read import read

RANKS = 512
ODD = (7, 199, 509)
WAITING = (
    "all_reduce (torch/distributed/distributed_c10d.py:2810)",
    "all_reduce (vllm/distributed/device_communicators/cuda_communicator.py:85)",
    "execute_model (vllm/v1/worker/gpu_model_runner.py:3100)",
)
ELSEWHERE = (
    "acquire_read (vllm/distributed/device_communicators/shm_broadcast.py:612)",
    "dequeue (vllm/distributed/device_communicators/shm_broadcast.py:690)",
)
OUTER = ("worker_busy_loop (vllm/v1/executor/multiproc_executor.py:941)",)


def dump(rank: int) -> str:
    pid = 1000 + rank
    frames = "\n".join(f"    {f}" for f in (*(ELSEWHERE if rank in ODD else WAITING), *OUTER))
    helper = f'Thread {90000 + rank} (idle): "tqdm_monitor"\n    wait (threading.py:359)\n    run (tqdm/_monitor.py:60)'
    return f'Process {pid}: VLLM::Worker_TP{rank}\nPython v3.12.1 (/usr/bin/python3)\n\nThread {pid} (active): "MainThread"\n{frames}\n{helper}\n'


def test_the_odd_ranks_are_named() -> None:
    text = "\n".join(dump(rank) for rank in range(RANKS)).encode()
    facts = StatedFacts(progress=StatedProgress(tokens_frozen_seconds=300))
    seen = diagnose(read([("ranks.txt", io.BytesIO(text))], facts=facts), load())
    assert len(seen.processes) == RANKS
    assert seen.verdict.finding == "collective-hang"
    assert seen.verdict.culprit is not None and seen.verdict.culprit.pid in {1000 + r for r in ODD}
    (odd,) = [line for line in seen.buckets if line.startswith(f"{len(ODD)} x")]
    assert all(f"VLLM::Worker_TP{rank}" in odd for rank in ODD)
