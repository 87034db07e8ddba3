"""An embedding server (`--runner pooling`) under many small requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.real_vllm.harness import Engine, Load, doctor, embedding, wait_until


@pytest.fixture(scope="module")
def engine(serve: Callable[..., Engine]) -> Iterator[Engine]:
    with serve("--runner", "pooling") as engine:
        yield engine.ready()


def test_idle(engine: Engine) -> None:
    report = doctor(engine.pid)
    assert report.finding == "idle" and report.status == 0, report


def test_many_small_requests(engine: Engine) -> None:
    with Load(engine.port, 16, embedding) as load:
        wait_until(lambda: load.answered > 32, 60, "embeddings come back")
        report = doctor(engine.pid)
        before = load.answered
        wait_until(lambda: load.answered > before, 30, "embeddings still come back")
    assert report.verdict["state"] in ("busy", "slow"), report
    assert report.finding in ("busy", "compute-bound", "frontend-bound", "host-bound"), report
    assert report.json["engine_counters"]["finished_per_second"] > 0
    assert not report.unknown_places(), report.unknown_places()
