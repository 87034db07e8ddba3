"""Doctor as a user who may not trace the engine: a verdict from counters and /proc, marked with its tier."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from enginectl.cli.demo_process import Demo

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed"),
]
NOBODY = "65534"


def doctor_as_nobody(pid: int, *more: str) -> tuple[int, dict[str, Any]]:
    as_nobody = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
    argv = [*as_nobody, sys.executable, "-m", "enginectl", "doctor", "--pid", str(pid), "--json", "-q", *more]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, cwd="/")
    if "Permission denied" in done.stderr and not done.stdout:
        pytest.skip(f"another user cannot run this installation: {Path(sys.executable)}")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("fault", "finding", "code"),
    [
        ("idle", "idle", 0),
        ("load", "compute-bound", 0),
        ("forward-never-returns", "device-hang", 10),
        ("stopped", "process-stopped", 10),
        ("cpu-starved", "cpu-starved", 10),
    ],
)
def test_verdict_without_stacks(fault: str, finding: str, code: int) -> None:
    with Demo(fault) as demo:
        assert demo.wait_for("fault-active")
        status, report = doctor_as_nobody(demo.pid, "--url", f"{demo.url}/metrics")
    assert report["verdict"]["finding"] == finding, report["findings"]
    assert status == code
    assert not report["tiers"]["T2"]["reached"] and report["tiers"]["T1"]["reached"]
    assert any(gap["source"] == "stacks" and gap["remedy"] for gap in report["gaps"])
    if finding != "process-stopped":
        assert report["verdict"]["confidence"] in ("low", "medium")


def test_no_ptrace_and_no_counters_is_a_permission_problem() -> None:
    with Demo("load") as demo:
        assert demo.wait_for("load")
        status, report = doctor_as_nobody(demo.pid, "--url", "http://127.0.0.1:1/metrics", "--no-confirm")
    assert status in (22, 23) and report["verdict"]["outcome"] == "undecided"
