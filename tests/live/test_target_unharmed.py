"""The target is never left stopped: enginectl is killed at any moment, and the target runs on."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from enginectl.cli.demo_process import Demo
from enginectl.observe import stacks, threads

pytestmark = pytest.mark.live
KILLS = 50


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    with Demo("", "--concurrency", "2") as running:
        assert running.wait_for("load")
        yield running


def runs(pid: int) -> bool:
    stat = threads.process_stat(pid)
    return stat is not None and stat.state not in "Tt" and threads.tracer_pid(pid) == 0


def looks_at(pid: int, doctor: subprocess.Popen[bytes]) -> bool:
    """Whether the target is traced just now. That lasts for some milliseconds: ask often."""
    assert doctor.poll() is None, f"doctor ended by itself, status {doctor.returncode}"
    return bool(threads.tracer_pid(pid))


def test_killed_at_any_moment(demo: Demo, wait_until: Callable[..., object]) -> None:
    chance = random.Random(4711)
    argv = [sys.executable, "-m", "enginectl", "doctor", "--pid", str(demo.pid), "--samples", "200", "--duration", "20"]
    doctor = subprocess.Popen([*argv, "-q"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: looks_at(demo.pid, doctor), 60.0, longest_pause=0.001)
    for _ in range(KILLS):
        time.sleep(chance.uniform(0, 0.08))  # the moment itself is what varies
        doctor.send_signal(signal.SIGKILL)
        doctor.wait()
        wait_until(lambda: runs(demo.pid), 5.0)
        before = threads.process_stat(demo.pid)
        assert before is not None
        wait_until(lambda b=before: (threads.process_stat(demo.pid) or b).cpu_seconds > b.cpu_seconds, 20.0)
        doctor = subprocess.Popen([*argv, "-q"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda d=doctor: looks_at(demo.pid, d), 60.0, longest_pause=0.001)
    doctor.kill()
    doctor.wait()


def test_a_dump_over_its_limit_is_ended_and_the_target_runs(demo: Demo, wait_until: Callable[..., object]) -> None:
    (dump,) = stacks.dump([demo.pid], timeout_seconds=0.001)
    assert dump.error in ("timeout", "") and dump.pause_seconds >= 0
    wait_until(lambda: runs(demo.pid), 5.0)


def test_a_process_that_was_stopped_before_stays_stopped(wait_until: Callable[..., object]) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(1)"])
    try:
        wait_until(lambda: (threads.process_stat(child.pid) or None) and len(threads.thread_ids(child.pid)) == 1)
        child.send_signal(signal.SIGSTOP)
        wait_until(lambda: threads.process_stat(child.pid).state == "T")  # type: ignore[union-attr]
        stacks.dump([child.pid], timeout_seconds=5)
        assert threads.process_stat(child.pid).state == "T"  # type: ignore[union-attr]
    finally:
        child.kill()
        child.wait()
