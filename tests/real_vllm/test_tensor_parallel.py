"""Two tensor-parallel ranks on two cores, with real collectives: one rank stopped, stuck, late, or out of step."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from tests.real_vllm.harness import Engine, Report, decoding, doctor, stop, wait_until


@pytest.fixture(scope="module")
def pair(serve: Callable[..., Engine]) -> Iterator[Engine]:
    """The server while it starts; the first test looks at that, the others wait until it is ready."""
    with serve("-tp", "2", VLLM_CPU_OMP_THREADS_BIND="0|1") as engine:
        yield engine


@pytest.fixture
def engine(pair: Engine) -> Iterator[Engine]:
    yield pair.ready().settled()
    pair.disarm()


def rank(engine: Engine, number: int) -> int:
    return engine.member(f"VLLM::Worker_TP{number}")


def places(report: Report, pid: int) -> set[str]:
    return {
        t["wait_class"] for p in report.json["processes"] if p["pid"] == pid for t in p["threads"]
        if t["role"] == "worker-loop"
    }  # fmt: skip


def test_starting(pair: Engine) -> None:
    seen = []
    for phase in ("engine core", "workers"):
        depth = {"engine core": 3, "workers": 5}[phase]
        wait_until(lambda d=depth: len(pair.tree()) >= d, 200, f"{phase} started")
        report = doctor(pair.pid, "--no-confirm")
        seen.append(report.finding)
        assert report.finding.startswith("starting-") and report.status == 0, report
    assert not pair.answers(), seen


def test_healthy_under_load(engine: Engine) -> None:
    for _ in range(3):
        with decoding(engine, 8):
            report = doctor(engine.pid)
        assert report.finding in ("busy", "compute-bound") and report.status == 0, report
        assert not report.unknown_places(), report.unknown_places()


def test_ranks_are_known(engine: Engine) -> None:
    report = doctor(engine.pid)
    assert report.finding == "idle", report
    assert sorted(p["rank"] for p in report.json["processes"] if p["role"] == "worker") == [0, 1]


@pytest.mark.parametrize("odd", [0, 1])
def test_one_rank_stopped(engine: Engine, odd: int) -> None:
    culprit = rank(engine, odd)
    with decoding(engine, 8):
        stop(culprit)
        try:
            report = doctor(engine.pid)
        finally:
            os.kill(culprit, signal.SIGCONT)
    assert report.finding == "process-stopped" and report.culprit["pid"] == culprit, report
    assert report.culprit["rank"] == odd


def test_one_rank_late(engine: Engine) -> None:
    engine.arm("slow-forward", seconds=0.1, rank=1)
    with decoding(engine, 4):
        report = doctor(engine.pid)
    assert report.finding == "rank-lag" and report.status == 10, report
    assert report.culprit["pid"] == rank(engine, 1) and report.culprit["rank"] == 1
    assert places(report, rank(engine, 0)) == {"collective"}, report


@pytest.mark.parametrize("odd", [1, 0])
def test_one_rank_stuck_in_its_forward(engine: Engine, odd: int) -> None:
    with decoding(engine, 4):
        engine.arm("stuck-forward", rank=odd)
        wait_until(lambda: "stuck-forward" in engine.used(), 30)
        report = doctor(engine.pid)
        engine.disarm()
    assert report.finding == "collective-hang" and report.status == 10, report
    assert report.culprit["pid"] == rank(engine, odd) and report.culprit["rank"] == odd
    assert places(report, rank(engine, 1 - odd)) == {"collective"}, report


def test_one_rank_skips_a_collective(pair: Engine) -> None:
    """The last one: the ranks never come together again."""
    with decoding(pair, 4):
        pair.arm("skipped-collective", rank=1, times=1)
        wait_until(lambda: "skipped-collective" in pair.used(), 30)
        report = doctor(pair.pid)
    assert report.finding == "collective-hang" and report.status == 10, report
    assert report.culprit["rank"] == 1, report
    assert places(report, rank(pair, 0)) == {"collective"}, report
