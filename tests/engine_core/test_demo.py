"""The run-demo program: its events, its errors, and that it leaves nothing."""

from __future__ import annotations

import glob
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine_core.faults import FAULTS
from engine_core.process import read_threads

from .conftest import environment, start

pytestmark = pytest.mark.live


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "engine_core", *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        env=environment(),
        stdin=subprocess.DEVNULL,
    )


def run_dir_of(pid: int) -> Path:
    """The ipc directory, from the front end's command line."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return Path(words[words.index("--run-dir") + 1])


def test_load_events_and_a_clean_end(gone: Callable[[int], None]) -> None:
    program = start("engine_core", "--concurrency", "2")
    try:
        ready = program.wait_for("ready")
        run_dir = run_dir_of(ready["frontend_pid"])
        assert (run_dir / "input").exists()
        assert {"IPCLoop", "EngineCoreLoop", "OutputProcessor"} <= set(read_threads(ready["engine_pid"]))
        assert Path(f"/proc/{ready['engine_pid']}/cmdline").read_text().rstrip("\0") == "engine_core"
        load = program.wait_for("load")
        while not load["finished"]:
            load = program.wait_for("load")
        assert load["requests_per_second"] > 0
    finally:
        status = program.end(signal.SIGINT)
    assert status == 0
    gone(ready["frontend_pid"])
    gone(ready["engine_pid"])
    assert not run_dir.exists()


def test_the_death_of_the_program_ends_a_stopped_engine(gone: Callable[[int], None]) -> None:
    program = start("engine_core", "--fault", "stopped")
    try:
        ready = program.wait_for("ready")
        assert program.wait_for("fault-active", 70)["fault"] == "stopped"
        assert read_threads(ready["engine_pid"])["MainThread"].state == "T"
        run_dir = run_dir_of(ready["frontend_pid"])
        (run_dir / "left.active").touch()
    finally:
        program.end(signal.SIGKILL)
    gone(ready["frontend_pid"])
    gone(ready["engine_pid"])
    assert not run_dir.exists()
    assert not glob.glob(f"/dev/shm/engine_core-{ready['engine_pid']}-*")


def test_a_pipe_that_nobody_empties_does_not_hold_it_up() -> None:
    code = (
        "from engine_core.reporting import make_reporter\n"
        "reporter = make_reporter(True, lambda: None)\n"
        "for n in range(2000): reporter.event('load', number=n, padding='x' * 200)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment()) as program:
        try:
            assert program.wait(60) == 0
            assert program.stdout is not None
            events = [json.loads(line) for line in program.stdout]
        finally:
            program.kill()
    assert [event["number"] for event in events] == list(range(len(events)))
    assert 0 < len(events) < 2000


@pytest.mark.parametrize("arguments", [("--concurrency", "2"), ("--fault", "queue-cycle")])
def test_it_ends_when_nobody_reads_its_events_any_more(arguments: tuple[str, ...], gone: Callable[[int], None]) -> None:
    program = start("engine_core", *arguments)
    try:
        ready = program.wait_for("ready")
        run_dir = run_dir_of(ready["frontend_pid"])
        assert program.process.stdout is not None
        program.process.stdout.close()
        assert program.process.wait(60) == 0
    finally:
        program.end(signal.SIGKILL)
    gone(ready["frontend_pid"])
    gone(ready["engine_pid"])
    assert not run_dir.exists()


@pytest.mark.parametrize("fault", ["queue-cycle", "crash"])
def test_a_fault_becomes_active_and_the_server_still_answers(fault: str, gone: Callable[[int], None]) -> None:
    import urllib.request

    program = start("engine_core", "--fault", fault)
    try:
        ready = program.wait_for("ready")
        program.wait_for("fault-active", 70)
        with urllib.request.urlopen(ready["url"] + "/metrics", timeout=30) as response:
            assert response.status == 200
        assert Path(f"/proc/{ready['engine_pid']}").exists()
        run_dir = run_dir_of(ready["frontend_pid"])
    finally:
        status = program.end()
    assert status == 0
    gone(ready["engine_pid"])
    assert not run_dir.exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--model", "no-such-model"), "unknown model 'no-such-model'; known: qwen3-embedding-tiny"),
        (("--fault", "no-such-fault"), "unknown fault 'no-such-fault'; known: idle"),
        (("--hf-overrides", '{"nonsense": 1}'), "--hf-overrides"),
        (("--max-num-seqs", "0"), "--max-num-seqs must be at least 1"),
        (("--model", "qwen3-0.6b", "--weights", "real"), "no weights found for qwen3-0.6b"),
    ],
)
def test_wrong_arguments_give_one_line_and_status_2(arguments: tuple[str, ...], reason: str) -> None:
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_taken_port_gives_one_line_and_status_2() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run("--port", str(taken.getsockname()[1]))
    assert result.returncode == 2
    assert "cannot listen on 127.0.0.1" in result.stderr


def test_a_taken_ipc_path_gives_status_2(tmp_path: Path) -> None:
    (tmp_path / "input").touch()
    result = run("--run-dir", str(tmp_path))
    assert result.returncode == 2
    assert f"ipc path {tmp_path}/input is taken" in result.stderr
    assert (tmp_path / "input").exists()


def test_a_missing_library_is_named_with_the_remedy(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; import runpy; runpy.run_module('engine_core', run_name='__main__')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=60)
    assert result.returncode == 2
    assert "pip install 'enginectl[demo]'" in result.stderr


def test_the_table_of_faults() -> None:
    rows = json.loads(run("--list-faults", "--json").stdout)
    assert [row["name"] for row in rows] == list(FAULTS)
    assert all(row["findings"] and row["description"] for row in rows)
    assert all(row["supported"] or row["reason"] for row in rows)
    if os.geteuid() != 0:
        assert not next(row for row in rows if row["name"] == "shm-full")["supported"]
