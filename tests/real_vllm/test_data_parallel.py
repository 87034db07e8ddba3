"""Two data-parallel engines behind two API servers, started as siblings by one launcher."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from tests.real_vllm.harness import Engine, decoding, doctor, stop


@pytest.fixture(scope="module")
def engine(serve: Callable[..., Engine]) -> Iterator[Engine]:
    with serve("--data-parallel-size", "2", VLLM_CPU_OMP_THREADS_BIND="0|1") as engine:
        yield engine.ready()


def test_every_member_leads_to_the_whole_tree(engine: Engine) -> None:
    roles = []
    for title in ("VLLM::EngineCore_DP1", "VLLM::DPCoordinator"):
        report = doctor(engine.member(title))
        assert report.finding == "idle" and report.status == 0, report
        assert not report.unknown_places(), report.unknown_places()
        roles.append(sorted(p["role"] for p in report.json["processes"] if p["role"] != "helper"))
    wanted = ["coordinator", "engine-core", "engine-core", "frontend", "frontend", "worker", "worker"]
    assert roles == [wanted, wanted]


def test_both_under_load(engine: Engine) -> None:
    with decoding(engine, 8):
        report = doctor(engine.pid)
    assert report.finding in ("busy", "compute-bound", "cpu-starved"), report
    assert not report.unknown_places(), report.unknown_places()


@pytest.mark.parametrize("number", [0, 1])
def test_one_engine_stopped(engine: Engine, number: int) -> None:
    culprit = engine.member(f"VLLM::EngineCore_DP{number}")
    with decoding(engine, 8):
        stop(culprit)
        try:
            report = doctor(engine.pid)
        finally:
            os.kill(culprit, signal.SIGCONT)
    assert report.finding == "process-stopped" and report.status == 10, report
    assert report.culprit["pid"] == culprit and report.culprit["rank"] == number, report
