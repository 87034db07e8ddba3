"""An engine in a pid namespace of its own, seen from the host: stacks and /proc rows still belong together."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from enginectl.observe.record import Observation, Settings

pytestmark = pytest.mark.live
SLEEPER = """
import threading
def other():
    threading.Event().wait()
threading.Thread(target=other, name="other", daemon=True).start()
print("up", flush=True)
input()
"""


@pytest.fixture
def inside() -> Iterator[int]:
    if os.geteuid() != 0:
        pytest.skip("needs root, to make a pid namespace")
    argv = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", SLEEPER]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None
    try:
        if child.stdout.readline() != "up\n":
            pytest.skip("this machine makes no pid namespaces")
        yield psutil.Process(child.pid).children()[0].pid
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_threads_of_another_pid_namespace_keep_their_cpu_and_state(inside: int) -> None:
    observation = Observation(inside, Settings(gpu=False), lambda title, command: None, {}, lambda title: {})
    snapshot = observation.take()
    observation.close()
    (sample,) = snapshot.processes
    python = [thread for thread in sample.threads if thread.frames]
    assert {thread.name for thread in python} == {"MainThread", "other"}
    assert all(thread.os_state == "S" and thread.cpu_seconds is not None for thread in python)
    assert {thread.tid for thread in python} == set(map(int, os.listdir(f"/proc/{inside}/task")))
    assert sample.native_threads == 0
