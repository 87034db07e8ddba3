"""Every fault of the bundled engine on live processes: the finding it must provoke, and no other critical one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from enginectl.cli.demo_process import Demo
from enginectl.cli.selftest import Row, fault_table

pytestmark = pytest.mark.live
FAULTS = fault_table()


@pytest.mark.parametrize("row", FAULTS, ids=lambda r: r.name)
def test_fault(row: Row) -> None:
    if not row.supported:
        pytest.skip(f"not possible here: {row.reason}")
    with Demo(row.name) as demo:
        assert demo.wait_for("fault-active"), "the fault did not take hold"
        done = subprocess.run(
            [sys.executable, "-m", "enginectl", "doctor", "--pid", str(demo.pid), "--json", "-q"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode in (0, 10), done.stderr
    report = json.loads(done.stdout)
    verdict = report["verdict"]
    evidence = [(f["finding"], f["summary"]) for f in report["findings"]]
    assert verdict["finding"] in row.accepted, evidence
    assert verdict["outcome"] == "decided"
    others = [f["finding"] for f in report["findings"][1:] if f["severity"] == "critical"]
    assert others == [], evidence
