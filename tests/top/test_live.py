"""The live view on a real engine, in a real terminal (tmux), and what it costs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginectl.cli import pipeline
from enginectl.cli.demo_process import Demo
from enginectl.cli.top_live import LiveFeed
from enginectl.observe.record import Settings
from enginectl.top.moment import Moment

pytestmark = pytest.mark.live
MARKED = ("--max-num-seqs", "77")
"""An option by which the restarted engine is told from others on the host."""
TMUX = shutil.which("tmux")


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    with Demo("", "--concurrency", "4") as engine:
        assert engine.wait_for("load"), "the demo engine did not start"
        yield engine


class Terminal:
    """`enginectl` in a terminal of its own."""

    def __init__(self, folder: Path, *words: str, width: int = 100, height: int = 30) -> None:
        self._socket = str(folder / "tmux")
        command = [sys.executable, "-m", "enginectl", *words]
        self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), "-c", str(folder), "-s", "t", *command)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            [str(TMUX), "-f", "/dev/null", "-S", self._socket, *words], capture_output=True, text=True, timeout=10
        )
        return done.stdout

    def text(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "t")

    def press(self, key: str) -> None:
        self._tmux("send-keys", "-t", "t", key)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-t", "t", "-x", str(width), "-y", str(height))

    def shows(self, *wanted: str, seconds: float = 40.0) -> str:
        """The screen once it holds all of these."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            text = self.text()
            if all(word in text for word in wanted):
                return text
            time.sleep(0.2)
        raise AssertionError(f"no {wanted} in:\n{self.text()}")

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def terminal(demo: Demo, tmp_path: Path) -> Iterator[Terminal]:
    if TMUX is None:
        pytest.skip("tmux is not installed")
    one = Terminal(tmp_path, "top", "--pid", str(demo.pid))
    yield one
    one.close()


def test_in_a_real_terminal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.shows("BUSY", "engine-loop", "no GPU readable" if not Path("/dev/nvidia0").exists() else "GPU 0")
    terminal.press("Enter")
    terminal.shows("STACK of engine-loop", "innermost first")
    terminal.press("q")
    terminal.press("c")
    terminal.shows("BLAME CHAIN", "EVIDENCE")
    terminal.press("q")
    terminal.press("p")
    terminal.shows("PAUSED")
    terminal.press("p")
    terminal.resize(80, 24)
    terminal.shows("live", "THREADS")
    terminal.press("r")
    terminal.shows("saved")
    saved = list(tmp_path.glob("*.ecrec"))
    assert len(saved) == 1 and saved[0].stat().st_mode & 0o777 == 0o600
    terminal.press("q")
    end = time.monotonic() + 15
    while terminal.text().strip() and time.monotonic() < end:
        time.sleep(0.2)


def collect(feed: LiveFeed, enough: object, seconds: float) -> list[Moment]:
    """Run the feed until `enough(moments)`, at most so long."""
    got: list[Moment] = []
    stop = threading.Event()
    worker = threading.Thread(target=feed.run, args=(got.append, stop), daemon=True)
    worker.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not enough(got):
        time.sleep(0.1)
    stop.set()
    worker.join(30)
    assert not worker.is_alive()
    return got


def test_an_engine_that_ends_is_told_and_found_again() -> None:
    knowledge = pipeline.knowledge_of("")
    with Demo("idle", *MARKED) as first:
        assert first.wait_for("ready")
        feed = LiveFeed(first.pid, Settings(gpu=False), knowledge, "max-num-seqs 77 ")
        second: list[Demo] = []

        def enough(moments: list[Moment]) -> bool:
            if moments and not second and not moments[-1].gone:
                first.stop()
                second.append(Demo("idle", *MARKED))
            return bool(second) and any(m.gone for m in moments) and not moments[-1].gone

        try:
            moments = collect(feed, enough, 90)
        finally:
            for engine in second:
                engine.stop()
    assert any(m.gone and m.trouble and str(first.pid) in m.trouble.text for m in moments)
    assert not moments[-1].gone
    assert all(p.pid != first.pid for p in moments[-1].processes)


@pytest.mark.slow
def test_cost_is_bounded(demo: Demo) -> None:
    """At most 3 % of a core over 40 s at one moment a second, py-spy included."""
    import resource

    def used() -> float:
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime

    feed = LiveFeed(demo.pid, Settings(), pipeline.knowledge_of(""))
    marks: list[tuple[float, float]] = []

    def enough(moments: list[Moment]) -> bool:
        if moments and moments[-1].at > 20 and (not marks or moments[-1].at > 60):
            marks.append((time.monotonic(), used()))
        return len(marks) > 1

    moments = collect(feed, enough, 90)
    ratio = (marks[1][1] - marks[0][1]) / (marks[1][0] - marks[0][0])
    assert ratio <= 0.03, f"{ratio:.1%} of a core; load {os.getloadavg()[0]:.1f}"
    late = [m for m in moments if m.at > 20]
    assert 0.7 < len(late) / (late[-1].at - late[0].at) < 2.2
