"""`enginectl record` on the bundled engine: the same verdict from the file, and every way in which it can end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginectl.cli.demo_process import Demo
from enginectl.model.observed import Recording
from enginectl.read import read
from enginectl.read.recording import CUT

pytestmark = pytest.mark.live
ENGINECTL = (sys.executable, "-m", "enginectl")


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    with Demo("", "--concurrency", "4") as demo:
        assert demo.wait_for("load"), "the engine did not become ready"
        yield demo


def enginectl(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ENGINECTL, *map(str, words)], capture_output=True, text=True, timeout=120, check=False)


def back(path: Path) -> Recording:
    with path.open("rb") as stream:
        return read([(path.name, stream)])


def recorder(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen([*ENGINECTL, *map(str, words)], stderr=subprocess.PIPE, text=True)


def complete_snapshots(path: Path) -> int:
    try:
        return len(back(path).snapshots)
    except Exception:
        return 0


def test_the_file_gives_the_verdict_of_the_live_engine(demo: Demo, tmp_path: Path) -> None:
    path = tmp_path / "a.ecrec"
    done = enginectl("record", "-o", path, "--pid", demo.pid, "--duration", 5)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "never read: locals" in done.stderr
    live = json.loads(enginectl("doctor", "--pid", demo.pid, "--json", "-q").stdout)
    saved = json.loads(enginectl("doctor", "--from", path, "--json").stdout)
    for key in ("state", "finding", "code", "outcome"):
        assert saved["verdict"][key] == live["verdict"][key], (saved["verdict"], live["verdict"])
    assert [p["pid"] for p in saved["processes"]] == [p["pid"] for p in live["processes"]]
    assert enginectl("doctor", "--from", path, "--json").stdout == enginectl("doctor", "--from", path, "--json").stdout


def test_exports_of_the_recording_and_of_the_live_engine(demo: Demo, tmp_path: Path) -> None:
    path = tmp_path / "a.ecrec"
    assert enginectl("record", "-o", path, "--pid", demo.pid, "--duration", 2, "-q").returncode == 0
    for form in ("perfetto", "speedscope", "folded"):
        done = enginectl("doctor", "--from", path, "--export", form, tmp_path / form)
        assert done.returncode in (0, 10), done.stderr
        assert (tmp_path / form).stat().st_size > 500
    done = enginectl("doctor", "--pid", demo.pid, "-q", "--no-confirm", "--export", "folded", tmp_path / "live")
    assert done.returncode in (0, 10, 23), done.stderr
    assert "EngineCoreLoop" in (tmp_path / "live").read_text()
    assert enginectl("doctor", "--from", path, "--export", "nothing", tmp_path / "x").returncode == 2
    assert enginectl("doctor", "--from", path, "--export", "folded", tmp_path / "no" / "x").returncode == 2


def test_a_killed_recording_is_readable_and_its_verdict_is_given(demo: Demo, tmp_path: Path, wait_until) -> None:
    path = tmp_path / "a.ecrec"
    child = recorder("record", "-o", path, "--pid", demo.pid, "--duration", 0, "--rate", 4)
    try:
        wait_until(lambda: complete_snapshots(path) >= 6)
    finally:
        child.kill()
        child.communicate()
    seen = back(path)
    assert len(seen.snapshots) >= 6
    assert CUT in seen.gaps
    assert enginectl("doctor", "--from", path).returncode in (0, 10)
    assert os.stat(f"/proc/{demo.pid}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_as_a_complete_file(demo: Demo, tmp_path: Path, number: signal.Signals, wait_until) -> None:
    path = tmp_path / "a.ecrec"
    child = recorder("record", "-o", path, "--pid", demo.pid, "--duration", 0)
    wait_until(lambda: complete_snapshots(path) >= 1)
    child.send_signal(number)
    _, said = child.communicate(timeout=30)
    assert child.returncode == 0, said
    seen = back(path)
    assert CUT not in seen.gaps
    assert seen.snapshots[-1].counters is not None


def test_a_pipe_takes_it_too(demo: Demo) -> None:
    done = subprocess.run(
        [*ENGINECTL, "record", "-o", "-", "--pid", str(demo.pid), "--duration", "1", "-q"],
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout[:2] == b"\x1f\x8b"
    looked = subprocess.run([*ENGINECTL, "doctor", "--from", "-"], input=done.stdout, capture_output=True, check=False)
    assert looked.returncode in (0, 10, 23), looked.stderr


@pytest.mark.parametrize("stopped", [False, True])
def test_the_bundle_is_there_in_15_seconds(demo: Demo, tmp_path: Path, stopped: bool) -> None:
    path, log = tmp_path / "a.ecrec", tmp_path / "engine.log"
    log.write_text("INFO prompt: a confidential question\nERROR No available shared memory broadcast block\n")
    if stopped:
        os.kill(demo.pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        done = enginectl("record", "--for-sharing", "-o", path, "--pid", demo.pid, "--log", log)
    finally:
        os.kill(demo.pid, signal.SIGCONT)
    assert time.monotonic() - began < 15.0
    assert done.returncode == 0, done.stderr
    assert "safe to restart" in done.stderr
    assert "shm-broadcast-wait" in done.stderr
    seen = back(path)
    assert len(seen.snapshots) == 3
    assert all(any(t.frames for p in s.processes for t in p.threads) for s in seen.snapshots)
    assert sum(s.counters is not None for s in seen.snapshots) >= (0 if stopped else 2)
    assert "confidential" not in repr(seen)
    if stopped:
        told = json.loads(enginectl("doctor", "--from", path, "--json").stdout)["verdict"]
        assert told["finding"] == "process-stopped"


def test_wrong_uses_end_with_their_code(demo: Demo, tmp_path: Path) -> None:
    path = tmp_path / "a.ecrec"
    path.write_text("precious")
    assert enginectl("record", "-o", path, "--pid", demo.pid).returncode == 2
    assert enginectl("record", "--force", "-o", path, "--pid", 1 << 22).returncode == 20
    assert path.read_text() == "precious"
    assert enginectl("record", "--for-sharing", "--no-redact", "-o", path, "--force").returncode == 2
    assert enginectl("record", "-o", tmp_path / "no" / "x", "--pid", demo.pid).returncode == 2
    assert enginectl("record", "-o", path, "--force", "--log", tmp_path / "no", "--pid", demo.pid).returncode == 2
    assert path.read_text() == "precious"


def test_an_engine_that_ends_leaves_what_was_seen(tmp_path: Path, wait_until) -> None:
    path = tmp_path / "a.ecrec"
    with Demo("", "--no-load", "--model", "qwen3-embedding-tiny") as demo:
        assert demo.wait_for("ready")
        child = recorder("record", "-o", path, "--pid", demo.pid, "--duration", 0)
        wait_until(lambda: complete_snapshots(path) >= 2)
        demo.stop()
        _, said = child.communicate(timeout=60)
    assert child.returncode == 20
    assert f"what was seen before is in {path}" in said
    assert CUT not in back(path).gaps
