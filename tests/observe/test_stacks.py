"""Reading stacks of a process that cannot be stopped: a thread in the kernel's uninterruptible sleep never stops."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginectl.observe import stacks, threads

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the reader is no parent of what it reads"),
]
SOURCE = """
#include <unistd.h>
int wait_for_child(int seconds) {  /* the parent of a vfork sleeps uninterruptibly until its child has gone */
    if (vfork() == 0) { sleep(seconds); _exit(0); }
    return 0;
}
"""
TARGET = """
import ctypes, sys, threading
def in_the_kernel():
    ctypes.CDLL(sys.argv[1]).wait_for_child(60)
threading.Thread(target=in_the_kernel, daemon=True).start()
print("ready", flush=True)
input()
"""


@pytest.fixture
def target(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "wait.c").write_text(SOURCE)
    library = tmp_path / "wait.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", library, tmp_path / "wait.c"], check=True)
    words = [sys.executable, "-c", TARGET, library]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + 10
        while not (stuck := [t.tid for t in threads.read_threads(process.pid) if t.os_state == "D"]):
            assert time.monotonic() < deadline, "no thread in state D"
            time.sleep(0.01)
        children = Path(f"/proc/{process.pid}/task/{stuck[0]}/children").read_text().split()
        yield process.pid
        for child in children:
            subprocess.run(["kill", "-9", child], check=True)
        process.kill()


def test_what_cannot_be_stopped_soon_is_let_go_and_read_while_it_runs(target: int) -> None:
    if stacks.find_py_spy() is None:
        pytest.skip("py-spy is not installed")
    (one,) = stacks.dump([target], timeout_seconds=30)
    assert one.moving and one.gap is None, one.gap
    assert one.threads is not None
    assert {frame.function for t in one.threads for frame in t.frames or ()} >= {"in_the_kernel"}
    assert one.pause_seconds < 2 * stacks.MAX_PAUSE_SECONDS
    assert threads.tracer_pid(target) == 0
    states = {t.os_state for t in threads.read_threads(target)}
    assert states <= {"S", "R", "D"}, states
    (again,) = stacks.dump([target], moving=frozenset({target}))
    assert again.pause_seconds == 0
