"""Whatever is asked of the command line: one clear line and the exit code of the contract, never a traceback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from enginectl.observe import threads

pytestmark = pytest.mark.live
Wait = Callable[..., object]

IDLE_PROGRAM = "import sys, threading; print('ready', flush=True); threading.Event().wait()"


def enginectl(*argv: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "enginectl", *argv], capture_output=True, text=True, timeout=120, check=False, **more
    )  # type: ignore[call-overload, no-any-return]


def one_clear_line(done: subprocess.CompletedProcess[str], code: int, words: str) -> None:
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.fixture
def python_process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", IDLE_PROGRAM], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_no_such_pid() -> None:
    one_clear_line(enginectl("doctor", "--pid", "4194303"), 20, "no process has pid 4194303")


def test_not_python() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        one_clear_line(enginectl("doctor", "--pid", str(child.pid)), 21, "is not a Python process")
    finally:
        child.kill()
        child.wait()


def test_a_shell_names_its_python_children() -> None:
    shell = subprocess.Popen(
        ["sh", "-c", f'"{sys.executable}" -c "{IDLE_PROGRAM}"; true'], stdout=subprocess.PIPE, start_new_session=True
    )
    assert shell.stdout is not None
    shell.stdout.readline()
    try:
        done = enginectl("doctor", "--pid", str(shell.pid))
        one_clear_line(done, 21, "Python processes below it")
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        shell.stdout.close()


def test_python_but_no_engine(python_process: subprocess.Popen[bytes]) -> None:
    one_clear_line(
        enginectl("doctor", "--pid", str(python_process.pid), "-q", "--no-confirm"), 21, "no engine that is known"
    )


def test_target_is_killed_while_it_is_observed(python_process: subprocess.Popen[bytes]) -> None:
    watcher = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "enginectl",
            "doctor",
            "--pid",
            str(python_process.pid),
            "--duration",
            "30",
            "--samples",
            "60",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # the first attach is seen as a tracer of the target
        deadline = threading.Event()
        timer = threading.Timer(30, deadline.set)
        timer.start()
        while not threads.tracer_pid(python_process.pid) and not deadline.is_set():
            pass
        timer.cancel()
        python_process.kill()
        python_process.wait()
        _, err = watcher.communicate(timeout=60)
    finally:
        watcher.kill()
    assert watcher.returncode == 20, err
    assert "exited while being observed" in err and "Traceback" not in err


def test_no_engine_on_this_host_or_a_name_that_matches_none() -> None:
    done = enginectl("doctor", "--name", "no-such-engine-here")
    one_clear_line(done, 21, "no engine is running")


def test_py_spy_missing(python_process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    program = (
        "import sys; from enginectl.observe import stacks; stacks.find_py_spy = lambda: None;"
        "from enginectl.cli.app import main; sys.argv = ['enginectl', *sys.argv[1:]]; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--pid", str(python_process.pid), "--no-confirm", "-q"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (21, 22) and "py-spy" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_rule_suggests_the_nearest() -> None:
    one_clear_line(enginectl("explain", "schedular-bound"), 2, "scheduler-bound")


def test_knowledge_folder_that_is_none() -> None:
    one_clear_line(enginectl("rules", "--knowledge", "/no/such/folder"), 2, "not a folder")


def test_broken_knowledge_names_file_and_key(tmp_path: Path) -> None:
    (tmp_path / "waits").mkdir()
    (tmp_path / "waits" / "mine.toml").write_text(
        '[[wait]]\nid = "mine.x"\nclass = "cpu"\nmeaning = "M."\nframs = []\n'
    )
    one_clear_line(enginectl("rules", "--knowledge", str(tmp_path)), 2, "mine.toml")


def test_unknown_model_and_unknown_fault_and_taken_port() -> None:
    one_clear_line(enginectl("run-demo", "--model", "no-such-model"), 2, "no-such-model")
    one_clear_line(enginectl("run-demo", "--fault", "no-such-fault"), 2, "no-such-fault")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        one_clear_line(enginectl("run-demo", "--port", port), 2, port)


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    dump = tmp_path / "dump.txt"
    dump.write_text(
        'Process 1: x\nPython v3.11.0 (/usr/bin/python3)\n\nThread 1 (idle): "MainThread"\n    f (a.py:1)\n'
    )
    done = enginectl("doctor", "--from", str(dump), "-o", "/no/such/folder/report.txt")
    one_clear_line(done, 2, "cannot write")


def test_closed_pipe_is_no_error(tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m enginectl rules | head -1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "0" and done.stderr == ""
