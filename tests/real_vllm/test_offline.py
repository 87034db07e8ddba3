"""The offline `LLM` class in a script of somebody's own: no server, no counters, no titles at its top."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.real_vllm.harness import Engine, doctor, stop, wait_until

SCRIPT = Path(__file__).parent / "offline_script.py"


@pytest.fixture
def script(
    vllm_bin: Path, model: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Engine]:
    def make(**variables: str) -> Engine:
        argv = [str(vllm_bin / "python"), str(SCRIPT), str(model)]
        return Engine(argv, environment | variables, tmp_path_factory.mktemp("offline"))

    return make


def generating(engine: Engine) -> Engine:
    def ready() -> bool:
        assert engine.process.poll() is None, engine.tail()
        return "ready\n" in engine.log.read_text(errors="replace")

    wait_until(ready, 300, "the script generates")
    return engine


def test_engine_in_a_child(script: Callable[..., Engine]) -> None:
    with script() as engine:
        generating(engine)
        report = doctor(engine.pid)
        assert report.verdict["state"] == "busy" and report.status == 0, report
        assert {"frontend-loop"} <= report.roles("frontend") and {"engine-loop"} <= report.roles("engine-core")
        assert not report.unknown_places(), report.unknown_places()
        worker = engine.member("VLLM::Worker")
        stop(worker)
        try:
            report = doctor(engine.pid)
        finally:
            os.kill(worker, signal.SIGCONT)
        assert report.finding == "process-stopped" and report.culprit["pid"] == worker, report


def test_engine_in_the_same_process(script: Callable[..., Engine]) -> None:
    with script(VLLM_ENABLE_V1_MULTIPROCESSING="0") as engine:
        generating(engine)
        report = doctor(engine.pid)
        assert report.verdict["state"] == "busy" and report.status == 0, report
        assert {"engine-loop"} <= report.roles("engine-core"), report
        assert not report.unknown_places(), report.unknown_places()
