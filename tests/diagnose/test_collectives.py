"""Counts of collectives: who stands apart, for how long, and what the verdict makes of it."""

from __future__ import annotations

import io

import msgspec
import pytest

from enginectl.diagnose.collectives import Apart, collective_clock
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


def apart(seen: Recording) -> Apart | None:
    clock = collective_clock(seen)
    assert clock is not None
    return clock.apart


@pytest.mark.parametrize(
    ("counts", "odd", "behind"),
    [
        ((9, 9, 9, 8), [3], 1),
        ((9, 5, 9, 9), [1], 4),
        ((20, 17, 18, 20), [1, 2], 3),
        ((9, 8), [1], 1),
        ((8, 8, 8, 9), [3], -1),  # one has entered what the others do not
    ],
)
def test_who_differs_from_most(counts: tuple[int, ...], odd: list[int], behind: int) -> None:
    found = apart(recording(ranks(*counts)))
    assert found is not None
    assert [r.rank for r in found.ranks] == odd
    assert found.behind == behind


def test_equal_counts_set_nobody_apart() -> None:
    assert apart(recording(ranks(9, 9, 9, 9))) is None


def test_sends_and_receives_differ_by_nature() -> None:
    assert apart(recording(ranks(1, 0, operation="SendRecv"))) is None


def test_ranks_that_are_ending_do_not_count() -> None:
    ended = CommunicatorRank(rank=3, pid=103, state="ending", collectives={"AllReduce": 1})
    assert apart(recording((*ranks(9, 9, 9), ended))) is None


def test_of_two_groups_the_one_that_stands_still_is_named() -> None:
    still, looks = ranks(5, 4, 5, 5), ((20, 20, 20, 19), (30, 30, 30, 29))
    seen = recording(*(ranks(*counts) for counts in looks))
    groups = [(Communicator(name="old", size=4, ranks=still), *(s.communicators or ())) for s in seen.snapshots]
    seen = msgspec.structs.replace(
        seen,
        snapshots=tuple(
            msgspec.structs.replace(s, communicators=tuple(reversed(g)))
            for s, g in zip(seen.snapshots, groups, strict=True)
        ),
    )
    found = apart(seen)
    assert found is not None
    assert ([r.rank for r in found.ranks], found.seconds) == ([1], 10.0)


def test_several_alike_are_told_in_the_plural() -> None:
    group = Communicator(name="c", ranks=(CommunicatorRank(members=6, collectives={"AllReduce": 9}), *ranks(8, 7)))
    seen = recording(ranks(1, 1))
    last = msgspec.structs.replace(seen.snapshots[-1], communicators=(group,))
    found = apart(msgspec.structs.replace(seen, snapshots=(last,)))
    assert found is not None
    assert found.words() == (
        "rank 1 (pid 101) and 1 more have launched up to 2 fewer AllReduce collectives than the others"
    )


def test_counts_that_stay_apart_are_a_collective_hang() -> None:
    stuck = ranks(1412, 1412, 1411, 1412)
    seen = verdict(recording(stuck, stuck))
    assert seen.verdict.finding == "collective-hang"
    assert seen.verdict.culprit is not None
    assert (seen.verdict.culprit.pid, seen.verdict.culprit.rank) == (102, 2)
    assert "rank 2 (pid 102) has launched 1 fewer AllReduce collectives than the others" in seen.verdict.summary


def test_counts_that_move_are_no_hang() -> None:
    seen = verdict(recording(ranks(10, 9, 10, 10), ranks(20, 20, 19, 20)))
    assert seen.verdict.finding != "collective-hang"


def test_a_rank_that_does_not_answer_is_lost() -> None:
    look = (*ranks(7, 7, 7), CommunicatorRank(rank=3, state="silent"))
    seen = verdict(recording(look, look))
    assert seen.verdict.finding == "collective-hang"
    assert seen.verdict.summary.startswith("A rank is lost to its peers: rank 3 does not answer, and")
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
        assert "1 fewer collectives than the others" in seen.verdict.summary


def test_an_idle_engine_is_no_collective_hang_whatever_its_counts() -> None:
    stuck = ranks(1412, 1411, 1412, 1412)
    seen = recording(stuck, stuck)
    facts = StatedFacts(
        requests=StatedRequests(running=0, waiting=0), progress=StatedProgress(tokens_frozen_seconds=60)
    )
    assert verdict(msgspec.structs.replace(seen, stated=facts)).verdict.finding != "collective-hang"


@pytest.mark.parametrize(
    "rows",
    [
        [(0, 2, 900), (1, 2, 900), (0, 2, 1412), (1, 2, 1412)],  # two replicas, each at one
        [(0, 4, 900)],
    ],
)
def test_stated_sequences_that_are_of_no_one_group_tell_nothing(rows: list[tuple[int, int, int]]) -> None:
    stated = tuple(
        StatedProcess(pid=100 + n, rank=rank, ranks=size, collective_sequence=count)
        for n, (rank, size, count) in enumerate(rows)
    )
    seen = msgspec.structs.replace(recording(), stated=StatedFacts(process=stated))
    assert collective_clock(seen) is None
