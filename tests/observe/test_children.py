"""Compilers below a process: a real one that waits for its source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from enginectl.observe.children import read_compilers


def wait_until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.005)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
def test_a_compiler_below_a_child_belongs_to_the_nearest_process_asked_about() -> None:
    """gcc reads its source from a pipe, so that it and its cc1 stay until the pipe is closed."""
    code = "import subprocess, sys; subprocess.run('gcc -S -x c -o /dev/null -'.split(), stdin=sys.stdin)"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert child.stdin is not None
    try:
        wait_until(lambda: read_compilers([child.pid])[0][child.pid].count == 2)
        found, gaps = read_compilers([os.getpid(), child.pid])
        alone, _ = read_compilers([os.getpid()])
    finally:
        child.stdin.close()
        child.wait(10)
    assert gaps == ()
    assert set(found[child.pid].names) == {"gcc", "cc1"} or any("gcc" in name for name in found[child.pid].names)
    assert found[child.pid].cpu_seconds >= 0
    assert found[os.getpid()].count == 0
    assert alone[os.getpid()].count == 2


def test_nothing_compiles() -> None:
    found, gaps = read_compilers([os.getpid()])
    assert (found[os.getpid()].count, found[os.getpid()].names, gaps) == (0, (), ())
