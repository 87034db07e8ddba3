"""Shared helpers of the reader tests."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "read"


class Reader:
    """Reads texts, and tells what was read in short form."""

    @staticmethod
    def read(*texts, same_process=False, facts=None):
        from enginectl.read import read

        raw = [t if isinstance(t, bytes) else t.encode() for t in texts]
        named = [(f"file{i}", io.BytesIO(data)) for i, data in enumerate(raw)]
        return read(named, same_process=same_process, facts=facts)

    def fixture(self, name):
        return self.read((FIXTURES / name).read_bytes())

    @staticmethod
    def brief(recording, snapshot=0):
        """{pid: [(tid, name, active, holds_gil, [(function, file, line, native)])]} of one snapshot."""
        return {
            p.pid: [
                (t.tid, t.name, t.active, t.holds_gil, [(f.function, f.file, f.line, f.native) for f in t.frames or ()])
                for t in p.threads
            ]
            for p in recording.snapshots[snapshot].processes
        }

    @staticmethod
    def names(recording, snapshot=0):
        """{pid: [function names of each thread]} of one snapshot."""
        return {
            p.pid: [[f.function for f in t.frames or ()] for t in p.threads]
            for p in recording.snapshots[snapshot].processes
        }


@pytest.fixture
def reader():
    return Reader()
