"""The paced loop: how many snapshots, which of them are full, and how it ends."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from enginectl.errors import NoSuchProcess
from enginectl.model.observed import Recording, Snapshot
from enginectl.record.session import record_into
from enginectl.record.stop import Deadline
from enginectl.record.write import Writer


class Source:
    """Counts what it is asked for; the target is gone after `lives` snapshots, `slow` seconds pass in each."""

    def __init__(self, lives: int = 1 << 30, slow: float = 0.0) -> None:
        self.full: list[bool] = []
        self.times: list[float] = []
        self._lives = lives
        self._slow = threading.Event(), slow

    def take(self, *, with_ends: bool = True) -> Snapshot:
        if len(self.full) >= self._lives:
            raise NoSuchProcess("pid 7 exited while being observed")
        self.full.append(with_ends)
        self.times.append(time.monotonic())
        self._slow[0].wait(self._slow[1])
        return Snapshot(offset_seconds=self.times[-1] - self.times[0])

    def recording(self) -> Recording:
        return Recording()


def test_the_window_is_spanned_and_both_ends_are_full(tmp_path: Path) -> None:
    source = Source()
    with Writer(tmp_path / "a", Recording()) as writer:
        record_into(writer, source, duration_seconds=0.9, rate_hertz=10)
    assert 8 <= len(source.full) <= 11
    assert source.times[-1] - source.times[0] == pytest.approx(0.9, abs=0.15)
    assert source.full[0] and source.full[-1]
    assert sum(source.full) == 3


def test_slow_snapshots_are_not_made_up_for(tmp_path: Path) -> None:
    source = Source(slow=0.2)
    with Writer(tmp_path / "a", Recording()) as writer:
        record_into(writer, source, duration_seconds=0.6, rate_hertz=20)
    assert len(source.full) <= 4


def test_a_stop_ends_it_with_a_full_snapshot(tmp_path: Path) -> None:
    source, stop = Source(), threading.Event()
    stopper = threading.Timer(0.2, stop.set)
    stopper.start()
    with Writer(tmp_path / "a", Recording()) as writer:
        record_into(writer, source, duration_seconds=0, rate_hertz=5, stop=stop)
    stopper.join()
    assert source.full[-1]
    assert source.times[-1] - source.times[0] < 2.0


def test_a_target_that_goes_leaves_what_was_seen(tmp_path: Path) -> None:
    with Writer(tmp_path / "a", Recording()) as writer, pytest.raises(NoSuchProcess):
        record_into(writer, Source(lives=2), duration_seconds=5, rate_hertz=20)
    assert writer.count == 2


def test_the_deadline_counts_the_longest_round() -> None:
    stop = threading.Event()
    deadline = Deadline(stop, time.monotonic() + 0.5)
    assert not deadline.is_set()
    threading.Event().wait(0.3)
    began = time.monotonic()
    assert deadline.wait(5.0)
    assert time.monotonic() - began < 0.25
    stop.set()
    assert Deadline(stop, time.monotonic() + 9).wait(5.0)
