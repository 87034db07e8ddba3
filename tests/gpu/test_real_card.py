"""The bundled engine on a real NVIDIA GPU. Skips, with its reason, where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from enginectl.cli.demo_process import Demo
from enginectl.observe.gpu import open_gpus

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def card() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")


def doctor(pid: int, *more: str) -> dict[str, Any]:
    words = [sys.executable, "-m", "enginectl", "doctor", "--pid", str(pid), "--json", "-q", *more]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 10), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_nvml_gives_real_numbers(record_property: Callable[[str, object], None]) -> None:
    reader, gaps = open_gpus()
    assert reader is not None, gaps
    try:
        samples, _ = reader.read([])
    finally:
        reader.close()
    assert samples, "NVML shows no GPU"
    first = samples[0]
    record_property("gpu", str(first))
    assert first.power_watts is not None and 5 < first.power_watts < 2000
    assert first.utilization_percent is not None and 0 <= first.utilization_percent <= 100


def test_idle() -> None:
    with Demo("idle") as demo:
        assert demo.wait_for("fault-active")
        assert doctor(demo.pid)["verdict"]["finding"] == "idle"


def test_load_is_computing_or_host_work_never_a_hang(record_property: Callable[[str, object], None]) -> None:
    with Demo("load") as demo:
        assert demo.wait_for("fault-active")
        report = doctor(demo.pid)
    record_property("gpus", json.dumps(report["gpus"]))
    assert report["verdict"]["state"] in ("busy", "slow"), report["verdict"]
    assert report["gpus"], "the report shows no GPU"


def test_a_spinning_kernel_is_a_device_hang(record_property: Callable[[str, object], None]) -> None:
    with Demo("forward-never-returns") as demo:
        assert demo.wait_for("fault-active")
        report = doctor(demo.pid)
    record_property("gpus", json.dumps(report["gpus"]))
    assert report["verdict"]["finding"] == "device-hang", report["verdict"]
