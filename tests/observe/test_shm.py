"""Shared memory: our own, one that is full in a mount namespace of its own, and one seen by a stranger."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from enginectl.observe.shm import read_shm, shared_segments

FILL = """
mount -t tmpfs -o size=1m tmpfs /dev/shm || exit 1
mkdir -p /dev/shm/below
head -c 900000 /dev/zero > /dev/shm/block
exec 9> /dev/shm/block9
echo up
exec sleep 60
"""


@pytest.fixture
def filled() -> Iterator[int]:
    child = subprocess.Popen(["unshare", "--mount", "sh", "-c", FILL], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        if child.stdout.readline() != b"up\n":
            pytest.skip("no tmpfs can be mounted here")
        yield child.pid
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_our_own() -> None:
    main, _, gaps = read_shm(os.getpid())
    if main is None:
        assert gaps and gaps[0].source == "shm"
        pytest.skip("no /dev/shm here")
    told = os.statvfs("/dev/shm")
    assert main.size_bytes == told.f_blocks * told.f_frsize
    assert 0 <= main.free_bytes <= main.size_bytes
    assert gaps == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a tmpfs")
def test_size_and_free_bytes_are_those_of_the_targets_mount_namespace(filled: int) -> None:
    main, _, gaps = read_shm(filled)
    assert main is not None
    assert main.size_bytes == 1 << 20
    assert main.free_bytes < 200_000
    assert main.open_files == 1
    assert gaps == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_stranger_reads_a_shared_mount_and_gets_a_gap_for_a_foreign_one(filled: int) -> None:
    look = """
import os, sys
from enginectl.observe.shm import read_shm, shared_segments
for pid in sys.argv[1:]:
    main, _, gaps = read_shm(int(pid))
    print(main.size_bytes if main else "none", len(gaps))
"""
    words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    done = subprocess.run(
        [*words, sys.executable, "-c", look, str(os.getpid()), str(filled)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"another user cannot start this Python: {done.stderr[-200:]}")
    main, _, _ = read_shm(os.getpid())
    assert done.stdout.splitlines() == [f"{main.size_bytes if main else 'none'} 0", "none 1"]


def test_a_process_that_is_gone_is_a_gap() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    main, others, gaps = read_shm(child.pid)
    assert (main, others) == (None, ())
    assert gaps[0].source == "shm"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a tmpfs")
def test_other_memory_file_systems_with_open_files_are_told() -> None:
    script = "mkdir -p $0 && mount -t tmpfs -o size=2m tmpfs $0 && exec 9> $0/file && echo up && exec sleep 60"
    place = f"/tmp/enginectl-shm-{os.getpid()}"
    child = subprocess.Popen(["unshare", "--mount", "sh", "-c", script, place], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        if child.stdout.readline() != b"up\n":
            pytest.skip("no tmpfs can be mounted here")
        _, others, _ = read_shm(child.pid)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        os.rmdir(place)
    assert [(each.mount, each.size_bytes, each.open_files) for each in others] == [(place, 2 << 20, 1)]


HOLD = """
import sys
from multiprocessing import resource_tracker, shared_memory
mine = shared_memory.SharedMemory(name=sys.argv[1]) if len(sys.argv) > 1 else shared_memory.SharedMemory(create=True, size=4096)
if len(sys.argv) > 1:
    resource_tracker.unregister(mine._name, "shared_memory")
print(mine.name, flush=True)
input()
if len(sys.argv) == 1:
    mine.unlink()
"""


def test_a_segment_that_two_processes_hold_is_told_of_both() -> None:
    def hold(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", HOLD, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    with hold() as first, hold() as alone:
        assert first.stdout and alone.stdout
        name = first.stdout.readline().strip()
        assert alone.stdout.readline()
        with hold(name) as second:
            assert second.stdout and second.stdout.readline().strip() == name
            found = shared_segments([first.pid, second.pid, alone.pid])
            second.communicate("\n")
        for each in (first, alone):
            each.communicate("\n")
    assert found == {first.pid: (name,), second.pid: (name,)}
    assert not os.path.exists(f"/dev/shm/{name}")
