"""One `vllm serve` on the CPU: front end, engine core, worker. Each scenario arms one fault and takes it back."""

from __future__ import annotations

import concurrent.futures
import os
import signal
from collections.abc import Iterator

import pytest
from tests.real_vllm.harness import Engine, Load, completion, decoding, doctor, stop, wait_until

from enginectl.observe import threads

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}


@pytest.fixture
def engine(server: Engine) -> Iterator[Engine]:
    """The shared server at rest, before and after."""
    yield server.settled()
    server.settled()


def test_idle(engine: Engine) -> None:
    for member in (engine.pid, engine.member("VLLM::EngineCore"), engine.member("VLLM::Worker")):
        report = doctor(member)
        assert report.finding == "idle" and report.status == 0, report
        assert not report.unknown_places(), report.unknown_places()


def test_eight_long_decodes(engine: Engine) -> None:
    worker = engine.member("VLLM::Worker")
    with decoding(engine, 8):
        report = doctor(engine.pid)
    assert report.finding in ("compute-bound", "busy") and report.status == 0, report
    assert report.json["engine_counters"]["tokens_per_second"] > 0
    assert report.chain_pids() == [engine.pid, engine.member("VLLM::EngineCore"), worker], report.json["chain"]
    assert report.json["chain"][-1]["wait_point"].startswith(("vllm.model.", "vllm.sample", "vllm.worker.")), report
    assert not report.unknown_places(), report.unknown_places()


def test_every_role_has_its_home(engine: Engine) -> None:
    report = doctor(engine.pid)
    assert {"frontend-loop"} <= report.roles("frontend")
    assert {"engine-loop", "ipc-in", "ipc-out"} <= report.roles("engine-core")
    assert {"worker-loop"} <= report.roles("worker")
    assert report.json["engine_counters"], "the port of /metrics was not found"
    versions = {p["engine_version"] for p in report.json["processes"] if p["role"] == "frontend"}
    assert versions == {"0.27.1+cpu"}


def test_slow_block_lookup(engine: Engine) -> None:
    engine.arm("slow-block-lookup", seconds=0.01)
    with decoding(engine, 8):
        report = doctor(engine.pid)
    assert report.finding == "scheduler-bound" and report.status == 10, report
    assert report.culprit["pid"] == engine.member("VLLM::EngineCore")


def test_slow_detokenizer(engine: Engine) -> None:
    engine.arm("slow-detokenizer", seconds=0.02)
    with Load(engine.port, 8, lambda n: completion(n, tokens=400, stream=True)):
        wait_until(lambda: "slow-detokenizer" in engine.used(), 60, "the first token is slow")
        report = doctor(engine.pid)
        engine.disarm()
    assert report.finding in ("output-bound", "frontend-bound") and report.status == 10, report
    assert report.culprit["pid"] == engine.pid


def test_grammar_compile(engine: Engine) -> None:
    engine.arm("slow-grammar", seconds=60)
    fields = {"response_format": {"type": "json_schema", "json_schema": {"name": "who", "schema": SCHEMA}}}
    with Load(engine.port, 2, lambda n: completion(n, tokens=20, **fields)):
        wait_until(lambda: "slow-grammar" in engine.used(), 60, "the compile is under way")
        report = doctor(engine.pid)
        engine.disarm()
    assert report.finding == "grammar-bound" and report.status == 10, report
    assert report.culprit["thread_role"] == "grammar-pool", report


def test_admission_never_succeeds(engine: Engine) -> None:
    engine.arm("admission-refused")
    with Load(engine.port, 4, completion):
        wait_until(lambda: "admission-refused" in engine.used(), 60, "admission was refused")
        report = doctor(engine.pid)
        engine.disarm()
    assert report.finding == "scheduler-livelock" and report.status == 10, report
    assert report.culprit["pid"] == engine.member("VLLM::EngineCore")


def test_dropped_request(engine: Engine) -> None:
    engine.arm("request-dropped", times=1)
    with Load(engine.port, 1, completion):
        wait_until(lambda: "request-dropped" in engine.used(), 60, "the engine core dropped it")
        report = doctor(engine.pid)
    assert report.finding == "request-lost" and report.status == 10, report


@pytest.mark.parametrize("title", ["VLLM::Worker", "VLLM::EngineCore"])
def test_stopped_under_load(engine: Engine, title: str) -> None:
    culprit = engine.member(title)
    with decoding(engine, 8):
        stop(culprit)
        try:
            report = doctor(engine.pid)
            state = _state(culprit)
        finally:
            os.kill(culprit, signal.SIGCONT)
    assert report.finding == "process-stopped" and report.status == 10, report
    assert report.culprit["pid"] == culprit
    assert state == "T", "the stopped process must be left as it was found"
    path = [engine.pid, engine.member("VLLM::EngineCore"), culprit]
    assert report.chain_pids() == list(dict.fromkeys(path)), report.json["chain"]


def test_stopped_front_end(engine: Engine) -> None:
    with decoding(engine, 8):
        stop(engine.pid)
        try:
            report = doctor(engine.member("VLLM::Worker"))
        finally:
            os.kill(engine.pid, signal.SIGCONT)
    assert report.finding == "process-stopped" and report.culprit["pid"] == engine.pid, report


def test_worker_killed(server: Engine) -> None:
    """The last one: the server does not survive it, so the death comes while doctor looks."""
    worker = server.member("VLLM::Worker")
    with decoding(server, 4), concurrent.futures.ThreadPoolExecutor(1) as pool:
        looking = pool.submit(doctor, server.pid, "--duration", "6", "--samples", "8")
        wait_until(lambda: threads.tracer_pid(worker), 60, "doctor has begun", longest_pause=0.001)
        os.kill(worker, signal.SIGKILL)
        report = looking.result()
    assert report.finding in ("worker-lost", "engine-exited") and report.status == 10, report


def _state(pid: int) -> str | None:
    stat = threads.process_stat(pid)
    return stat.state if stat else None
