"""File locks: real waiters and holders, and recorded lines of the kernel's list."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from enginectl.observe.locks import parse_locks, read_locks

TAKE = """
import fcntl, sys
file = open(sys.argv[1], "w")
print("up", flush=True)
fcntl.{call}(file, fcntl.LOCK_EX)
"""
POLL = """
import fcntl, sys
file = open(sys.argv[1], "w")
try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("up", flush=True)
input()
"""


def wait_until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.005)


def test_parse() -> None:
    text = (
        "1: POSIX  ADVISORY  WRITE 77 fd:00:2531452 0 EOF\n"
        "1: -> POSIX  ADVISORY  WRITE 88 fd:00:2531452 0 EOF\n"
        "2: FLOCK  ADVISORY  WRITE -1 00:2f:999 0 EOF\n"
        "3: OFDLCK ADVISORY  READ  -1 00:2f:5 0 EOF\n"
        "4: nonsense\n"
    )
    rows = parse_locks(text)
    assert [(each.number, each.waits, each.kind, each.access, each.pid, each.inode) for each in rows] == [
        (1, False, "POSIX", "WRITE", 77, 2531452),
        (1, True, "POSIX", "WRITE", 88, 2531452),
        (2, False, "FLOCK", "WRITE", -1, 999),
        (3, False, "OFDLCK", "READ", -1, 5),
    ]


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_a_waiter_names_the_file_and_its_holder(tmp_path: Path, call: str) -> None:
    place = tmp_path / "cache.lock"
    with open(place, "w") as mine:
        getattr(fcntl, call)(mine, fcntl.LOCK_EX)
        child = subprocess.Popen(
            [sys.executable, "-c", TAKE.format(call=call), str(place)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        try:
            child.stdout.readline()
            wait_until(lambda: child.pid in read_locks([child.pid])[0])
            found, gaps = read_locks([child.pid, os.getpid()])
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
    assert gaps == ()
    assert list(found) == [child.pid]
    assert found[child.pid][0].startswith(f"{place}, held by pid {os.getpid()} (")


def test_a_lock_that_is_polled_shows_while_its_file_is_open(tmp_path: Path) -> None:
    place = tmp_path / "build.lock"
    with open(place, "w") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        child = subprocess.Popen(
            [sys.executable, "-c", POLL, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdout.readline()
            found, _ = read_locks([child.pid])
        finally:
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()
    assert found[child.pid][0].startswith(f"{place}, held by pid {os.getpid()} (")
    assert found[child.pid][0].endswith("polled")


def test_a_lock_that_a_child_shares_with_its_parent_is_not_awaited(tmp_path: Path) -> None:
    place = tmp_path / "shared.lock"
    with open(place, "w") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        child = subprocess.Popen(["sleep", "60"], pass_fds=[mine.fileno()])
        try:
            assert read_locks([child.pid]) == ({}, ())
        finally:
            child.kill()
            child.wait()


def test_nobody_waits() -> None:
    assert read_locks([os.getpid()]) == ({}, ())
