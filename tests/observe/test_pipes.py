"""Pipes: real children that write to a pipe, a named pipe or a terminal which nobody reads."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from enginectl.observe.pipes import read_pipes

WRITE = (
    "import os, sys; fd = int(sys.argv[1]); print('up', file=sys.stderr, flush=True); os.write(fd, b'x' * (1 << 22))"
)


def wait_until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.005)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str, **options: object) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(list(arguments), **options)  # type: ignore[call-overload]
        made.append(child)
        return child

    yield begin
    for child in made:
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()


def test_a_process_that_writes_nothing_has_none() -> None:
    assert read_pipes(os.getpid()) == ((), ())


def test_a_full_pipe_names_the_descriptor_and_who_does_not_read(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    child = start(sys.executable, "-c", WRITE, "1", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stderr is not None
    child.stderr.readline()
    wait_until(lambda: bool(read_pipes(child.pid)[0]))
    lines, gaps = read_pipes(child.pid)
    assert gaps == ()
    assert len(lines) == 1
    assert lines[0].startswith("fd 1 -> pipe:[")
    assert f"read end held by pid {os.getpid()} (" in lines[0]


def test_wait_channels_that_were_read_before_are_used(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    child = start(sys.executable, "-c", WRITE, "1", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stderr is not None
    child.stderr.readline()
    wait_until(lambda: bool(read_pipes(child.pid)[0]))
    assert read_pipes(child.pid, {child.pid: "futex_wait_queue"}) == ((), ())
    assert read_pipes(child.pid, {child.pid: "anon_pipe_write"})[0] == read_pipes(child.pid)[0]


def test_a_reader_that_is_stopped_is_named_as_such(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    reader = start(sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()",
                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert reader.stdout is not None and reader.stdin is not None
    reader.stdout.readline()
    reader.send_signal(signal.SIGSTOP)
    os.waitpid(reader.pid, os.WUNTRACED)
    child = start(sys.executable, "-c", WRITE, "1", stdout=reader.stdin, stderr=subprocess.PIPE)
    reader.stdin.close()
    assert child.stderr is not None
    child.stderr.readline()
    wait_until(lambda: bool(read_pipes(child.pid)[0]))
    line = read_pipes(child.pid)[0][0]
    assert f"pid {reader.pid} (" in line
    assert line.endswith("stopped")


def test_a_pipe_that_only_the_writer_could_read(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    code = "import os, sys; r, w = os.pipe(); print('up', flush=True); os.write(w, b'x' * (1 << 22))"
    child = start(sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    wait_until(lambda: bool(read_pipes(child.pid)[0]))
    assert read_pipes(child.pid)[0][0].endswith("the writer itself")


def test_a_named_pipe(start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> None:
    place = tmp_path / "fifo"
    os.mkfifo(place)
    held = os.open(place, os.O_RDWR)
    code = (
        "import os, sys; f = os.open(sys.argv[1], os.O_WRONLY); print('up', flush=True); os.write(f, b'x' * (1 << 22))"
    )
    child = start(sys.executable, "-c", code, str(place), stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        wait_until(lambda: bool(read_pipes(child.pid)[0]))
        line = read_pipes(child.pid)[0][0]
    finally:
        os.close(held)
    assert f"-> {place}, read end held by pid {os.getpid()} (" in line


def test_a_terminal_that_takes_nothing(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    ours, theirs = pty.openpty()
    child = start(sys.executable, "-c", WRITE, "1", stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    try:
        assert child.stderr is not None
        child.stderr.readline()
        wait_until(lambda: bool(read_pipes(child.pid)[0]))
        line = read_pipes(child.pid)[0][0]
    finally:
        os.close(ours)
    assert line.startswith("fd 1 -> /dev/pts/")
    assert "a terminal that takes no output" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_stranger_gets_a_gap(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    look = "import sys; from enginectl.observe.pipes import read_pipes; print(len(read_pipes(int(sys.argv[1]))[1]))"
    words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = start(*words, sys.executable, "-c", look, str(os.getpid()), stdout=subprocess.PIPE, env=env)
    assert child.stdout is not None
    told = child.stdout.read()
    if not told:
        pytest.skip("another user cannot start this Python")
    assert told == b"1\n"


def test_a_process_that_is_gone_gives_a_gap() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    lines, gaps = read_pipes(child.pid)
    assert lines == ()
    assert gaps[0].source == "pipes"
