"""Where `--output` goes: whole to a file, and never in the place of a device or a pipe."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from enginectl.cli import pipeline


def test_a_file_is_written_whole_and_nothing_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    path.write_text("before")
    pipeline.write("after", str(path))
    assert path.read_text() == "after\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    pipeline.write("x" * 200_000, str(pipe))
    reader.join(10)
    assert got == [b"x" * 200_000 + b"\n"]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.write_bytes(b"")
    except OSError:
        pytest.skip("this user may not make or open devices here")
    pipeline.write("report", str(device))
    assert stat.S_ISCHR(device.lstat().st_mode)
