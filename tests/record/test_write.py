"""The writer and the reader agree, whole or cut at any place; no file is overwritten or shown to others."""

from __future__ import annotations

import gzip
import io
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.situations import FORWARD, LOOP_IDLE, T, counters, engine, recording

from enginectl.errors import UsageError
from enginectl.model.observed import Recording
from enginectl.read import read
from enginectl.read.recording import CUT
from enginectl.record.write import Writer


def whole() -> Recording:
    seen = recording(
        engine(T("EngineCoreLoop", [FORWARD, LOOP_IDLE])), samples=9, counters=(counters(steps=1), counters(steps=9))
    )
    return msgspec.structs.replace(seen, enginectl_version="1", target_pid=100, notes=("a note",), wall_seconds=2.5)


def written(path: Path, seen: Recording, **options: bool) -> None:
    with Writer(path, seen, **options) as writer:
        for snapshot in seen.snapshots:
            writer.add(snapshot)
        writer.finish(seen.wall_seconds)


def back(path: Path) -> Recording:
    with path.open("rb") as stream:
        return read([(path.name, stream)])


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    written(tmp_path / "a.ecrec", whole())
    assert msgspec.structs.replace(back(tmp_path / "a.ecrec"), understood=None) == whole()
    text = gzip.decompress((tmp_path / "a.ecrec").read_bytes())
    assert text.startswith(b'{"schema_version":1,')
    assert text.count(b'"wall_seconds"') == 1


def test_a_file_cut_anywhere_is_readable_to_its_last_whole_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "a.ecrec"
    ends = []
    with Writer(path, whole()) as writer:
        for snapshot in whole().snapshots:
            writer.add(snapshot)
            ends.append(path.stat().st_size)
        assert writer.size_bytes == ends[-1]
        writer.finish()
    raw = path.read_bytes()
    for cut in range(ends[0], len(raw) - 1, 7):
        seen = read([("cut", io.BytesIO(raw[:cut]))])
        count = sum(cut >= end for end in ends)
        # the flush mark behind a snapshot may be cut off while the snapshot itself is there
        assert len(seen.snapshots) in (count, count + 1)
        assert seen.snapshots == whole().snapshots[: len(seen.snapshots)]
        assert CUT in seen.gaps or len(seen.snapshots) == len(ends)


def test_a_killed_recorder_leaves_what_was_complete(tmp_path: Path, wait_until) -> None:
    path = tmp_path / "a.ecrec"
    script = """
import sys, time
from tests.record.test_write import whole
from enginectl.record.write import Writer
writer = Writer(sys.argv[1], whole())
for snapshot in whole().snapshots[:3]:
    writer.add(snapshot)
print("three", flush=True)
time.sleep(600)
"""
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    child = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, env=env, text=True)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == "three\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
    seen = back(path)
    assert seen.snapshots == whole().snapshots[:3]
    assert CUT in seen.gaps


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        written(tmp_path / "a.ecrec", whole())
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.ecrec").stat().st_mode) == 0o600


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    path = tmp_path / "a.ecrec"
    path.write_text("precious")
    with pytest.raises(UsageError) as failure:
        Writer(path, whole())
    assert "--force" in failure.value.fix
    assert path.read_text() == "precious"
    written(path, whole(), force=True)
    assert back(path).snapshots == whole().snapshots
    with pytest.raises(UsageError):
        Writer(tmp_path, whole(), force=True)


def test_a_link_is_replaced_and_never_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "a.ecrec"
    target.write_text("precious")
    link.symlink_to(target)
    with pytest.raises(UsageError):
        Writer(link, whole())
    written(link, whole(), force=True)
    assert not link.is_symlink()
    assert target.read_text() == "precious"
    link.unlink()
    link.symlink_to(tmp_path / "dangling")
    with pytest.raises(UsageError):
        Writer(link, whole())
    assert not (tmp_path / "dangling").exists()


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_regular_file_is_never_replaced(tmp_path: Path, force: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="no regular file"):
        Writer(pipe, whole(), force=force)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_a_recording_of_nothing_leaves_no_file(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.ecrec", whole()):
        pass
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_told_and_what_was_written_stays(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no regular file"):
        Writer("/dev/full", whole())
    resource = pytest.importorskip("resource")
    path = tmp_path / "a.ecrec"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
        with pytest.raises(UsageError, match=r"cannot write .* snapshots"), Writer(path, whole()) as writer:
            for snapshot in whole().snapshots * 50:
                writer.add(snapshot)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert back(path).snapshots[:3] == whole().snapshots[:3]


def test_a_clean_end_inside_the_block_is_not_reported_as_cut(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.ecrec", whole()) as writer:
        writer.add(whole().snapshots[0])
    seen = back(tmp_path / "a.ecrec")
    assert len(seen.snapshots) == 1
    assert CUT not in seen.gaps
