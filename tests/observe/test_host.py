"""Host: the real machine, a real control group with a quota, and recorded files of both versions."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginectl.observe import host
from enginectl.observe.host import ControlGroup, read_host

SPIN = """
import time
print("up", flush=True)
input()
end = time.monotonic() + 0.6
while time.monotonic() < end: pass
print("done", flush=True)
input()
"""


@contextlib.contextmanager
def in_group(controller: str, files: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A child in a version 1 group of its own; skips where groups cannot be made."""
    place = Path(f"/sys/fs/cgroup/{controller}/enginectl-test-{os.getpid()}")
    try:
        place.mkdir()
    except OSError as error:
        pytest.skip(f"no {controller} group can be made here: {error.strerror}")
    child = subprocess.Popen([sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdout.readline()
        try:
            for name, value in files.items():
                (place / name).write_text(value)
            (place / "cgroup.procs").write_text(str(child.pid))
        except OSError as error:
            pytest.skip(f"the {controller} group takes no limit here: {error.strerror}")
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
        deadline = time.monotonic() + 5
        while place.exists() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                place.rmdir()


def say(child: subprocess.Popen[str]) -> str:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return child.stdout.readline()


def test_this_process() -> None:
    sample, _ = read_host(os.getpid())
    assert sample.cpu_count == os.cpu_count()
    assert sample.affinity_cores == len(os.sched_getaffinity(0))
    assert sample.load_runnable is not None and sample.load_runnable >= 1
    assert sample.memory_free_bytes is not None and sample.memory_free_bytes > 0
    for value in (sample.cpu_pressure_percent, sample.memory_pressure_percent, sample.io_pressure_percent):
        assert value is None or 0 <= value <= 100
    assert sample.oom_kills is None or sample.oom_kills >= 0


def test_affinity_is_that_of_the_target() -> None:
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{core}]); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert read_host(child.pid)[0].affinity_cores == 1
        child.kill()


def test_a_process_that_is_gone_gives_a_gap() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    sample, gaps = read_host(child.pid)
    assert sample.affinity_cores is None
    assert any("control groups" in gap.reason for gap in gaps)


def test_quota_and_throttling_of_a_real_group() -> None:
    with in_group("cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"}) as child:
        before, _ = read_host(child.pid)
        assert say(child) == "done\n"
        after, gaps = read_host(child.pid)
    assert before.cpu_limit_cores == pytest.approx(0.2)
    assert before.throttled_seconds is not None and after.throttled_seconds is not None
    assert after.throttled_seconds > before.throttled_seconds
    assert not any("control groups" in gap.reason for gap in gaps)


def test_memory_limit_of_a_real_group() -> None:
    with in_group("memory", {"memory.limit_in_bytes": str(64 << 20)}) as child:
        sample, _ = read_host(child.pid)
    assert sample.memory_free_bytes is not None and 0 < sample.memory_free_bytes <= 64 << 20
    assert sample.oom_kills == 0


@pytest.fixture
def version_2(tmp_path: Path) -> ControlGroup:
    """A pod with a limit above a container without one, as version 2 writes it."""
    for place, files in {
        "pod/box": {
            "cpu.max": "max 100000\n",
            "cpu.stat": "usage_usec 5\nnr_throttled 0\nthrottled_usec 0\n",
            "cpu.pressure": "some avg10=12.50 avg60=1.00 avg300=0.00 total=5\nfull avg10=3.00 avg60=0 total=1\n",
            "memory.max": "max\n",
            "memory.current": "1000\n",
            "memory.events": "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n",
        },
        "pod": {
            "cpu.max": "150000 100000\n",
            "cpu.stat": "usage_usec 5\nnr_throttled 4\nthrottled_usec 2500000\n",
            "memory.max": "5000\n",
            "memory.current": "4500\n",
            "memory.stat": "anon 4000\ninactive_file 300\n",
        },
    }.items():
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / place / name).write_text(text)
    return ControlGroup(2, (tmp_path / "pod/box", tmp_path / "pod", tmp_path))


def test_version_2_the_tightest_level_counts(version_2: ControlGroup) -> None:
    assert host._cpu_limit(version_2) == 1.5
    assert host._throttled(version_2) == 2.5
    assert host._pressure("cpu", version_2) == 12.5
    assert host._memory_free(version_2) == 800
    assert host._oom_kills(version_2) == 2


def test_version_2_without_files_knows_no_limit(tmp_path: Path) -> None:
    group = ControlGroup(2, (tmp_path,))
    assert host._cpu_limit(group) is None
    assert host._throttled(group) is None


def test_version_1_without_limit(tmp_path: Path) -> None:
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (tmp_path / "memory.usage_in_bytes").write_text("5\n")
    group = ControlGroup(1, (tmp_path,))
    assert host._cpu_limit(group) is None
    assert (host._memory_free(group) or 0) > 1 << 20


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        ("/", "/a/b", ["a/b", "a", "."]),
        ("/docker/id", "/docker/id/a", ["a", "."]),
        ("/docker/id", "/docker/id", ["."]),
        ("/docker/id", "/elsewhere/a", ["."]),
        ("/", "/../../x/a", ["."]),
        ("/", "/", ["."]),
    ],
)
def test_levels_from_the_own_group_up(tmp_path: Path, root: str, path: str, expected: list[str]) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    assert [str(each.relative_to(tmp_path)) for each in host._levels(tmp_path, root, path)] == expected
