"""Counts of collectives: who stands apart, for how long, and what the verdict makes of it."""

from __future__ import annotations

import io

import pytest

from enginectl.diagnose.collectives import collective_clock
from enginectl.diagnose.diagnose import diagnose
from enginectl.knowledge.loader import load
from enginectl.model.diagnosed import Diagnosis
from enginectl.model.observed import (
    Communicator,
    CommunicatorRank,
    ProcessFact,
    ProcessSample,
    Recording,
    Snapshot,
    StatedFacts,
    StatedProcess,
    StatedProgress,
    StatedRequests,
)
from enginectl.read import read


def ranks(*counts: int, operation: str = "AllReduce") -> tuple[CommunicatorRank, ...]:
    return tuple(CommunicatorRank(rank=n, pid=100 + n, collectives={operation: c}) for n, c in enumerate(counts))


def recording(*looks: tuple[CommunicatorRank, ...]) -> Recording:
    pids = range(100, 108)
    return Recording(
        enginectl_version="0",
        processes=tuple(
            ProcessFact(pid=p, title=f"VLLM::Worker_TP{p - 100}", engine="vllm", role="worker") for p in pids
        ),
        snapshots=tuple(
            Snapshot(
                offset_seconds=10.0 * number,
                processes=tuple(ProcessSample(pid=p, os_state="S", cpu_seconds=1.0) for p in pids),
                communicators=(Communicator(name="c0", size=len(look), ranks=look),),
            )
            for number, look in enumerate(looks)
        ),
        stated=StatedFacts(requests=StatedRequests(running=1), progress=StatedProgress(tokens_frozen_seconds=60)),
    )


def verdict(seen: Recording) -> Diagnosis:
    return diagnose(seen, load())


@pytest.mark.parametrize(
    ("counts", "odd", "behind"),
    [
        ((9, 9, 9, 8), [3], 1),
        ((9, 5, 9, 9), [1], 4),
        ((8, 8, 8, 9), [3], -1),  # one has entered what the others do not
        ((9, 9, 9, 9), [], 0),
    ],
)
def test_the_smaller_side_is_odd(counts: tuple[int, ...], odd: list[int], behind: int) -> None:
    clock = collective_clock(recording(ranks(*counts)))
    assert clock is not None
    assert [r.rank for r in clock.odd] == odd
    assert all(r.behind == behind for r in clock.odd)


def test_sends_and_receives_differ_by_nature() -> None:
    clock = collective_clock(recording(ranks(1, 0, operation="SendRecv")))
    assert clock is not None and clock.odd == ()


def test_ranks_that_are_ending_do_not_count() -> None:
    ended = CommunicatorRank(rank=3, pid=103, state="ending", collectives={"AllReduce": 1})
    clock = collective_clock(recording((*ranks(9, 9, 9), ended)))
    assert clock is not None and clock.odd == ()


def test_counts_that_stay_apart_are_a_collective_hang() -> None:
    stuck = ranks(1412, 1412, 1411, 1412)
    seen = verdict(recording(stuck, stuck))
    assert seen.verdict.finding == "collective-hang"
    assert seen.verdict.culprit is not None
    assert (seen.verdict.culprit.pid, seen.verdict.culprit.rank) == (102, 2)
    assert "rank 2 (pid 102) has launched 1 fewer AllReduce collectives than its peers" in seen.verdict.summary


def test_counts_that_move_are_no_hang() -> None:
    seen = verdict(recording(ranks(10, 9, 10, 10), ranks(20, 20, 19, 20)))
    assert seen.verdict.finding != "collective-hang"


def test_a_rank_that_does_not_answer_is_lost() -> None:
    look = (*ranks(7, 7, 7), CommunicatorRank(rank=3, state="silent"))
    seen = verdict(recording(look, look))
    assert seen.verdict.finding == "collective-hang"
    assert seen.verdict.summary.startswith("A rank is lost to its peers: rank 3 does not answer its peers")
    assert seen.verdict.culprit is not None
    assert (seen.verdict.culprit.pid, seen.verdict.culprit.rank) == (None, 3)


DUMP = """Process {pid}: VLLM::Worker
Python v3.12.1 (/usr/bin/python3)

Thread {pid} (active): "MainThread"
    synchronize (torch/cuda/streams.py:231)
    get_output (vllm/v1/worker/gpu_model_runner.py:259)
    enqueue_output (vllm/v1/executor/multiproc_executor.py:880)
    worker_busy_loop (vllm/v1/executor/multiproc_executor.py:941)
"""


@pytest.mark.parametrize(("seconds", "finding"), [(300.0, "collective-hang"), (None, None)])
def test_stated_sequences_name_the_rank(seconds: float | None, finding: str | None) -> None:
    text = "\n".join(DUMP.format(pid=pid) for pid in (100, 101, 102, 103)).encode()
    rows = tuple(
        StatedProcess(pid=100 + n, rank=n, ranks=4, collective_sequence=1411 if n == 1 else 1412) for n in range(4)
    )
    facts = StatedFacts(process=rows, progress=StatedProgress(stuck_seconds=seconds))
    seen = diagnose(read([("ranks.txt", io.BytesIO(text))], facts=facts), load())
    if finding is None:
        assert seen.verdict.outcome == "undecided"
        assert "collective-hang" in seen.verdict.candidates
    else:
        assert seen.verdict.finding == finding
        assert seen.verdict.culprit is not None
        assert (seen.verdict.culprit.pid, seen.verdict.culprit.rank) == (101, 1)
        assert "1 fewer collectives than its peers" in seen.verdict.summary
