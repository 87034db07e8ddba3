"""`enginectl watch` on the bundled engine: a stop is caught with the moment before, a restart is followed, it ends."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from enginectl.cli.demo_process import Demo
from enginectl.model.observed import Recording
from enginectl.read import read

pytestmark = pytest.mark.live
STOPPED_SECONDS = 20.0
TRIGGERS = """
[[trigger]]
name = "stopped"
when = { finding = "process-stopped" }
for_seconds = 3
[trigger.recording]
after_seconds = 4
[trigger.log]
[trigger.command]
argv = ["/bin/sh", "-c", "echo $ENGINECTL_FINDING $ENGINECTL_CULPRIT_PID $ENGINECTL_RECORDING > told"]

[[trigger]]
name = "gone"
when = { state = "gone" }
[trigger.recording]
[trigger.log]
"""


class Watch:
    """A `watch` child whose lines are read as they come."""

    def __init__(self, folder: Path, *words: str) -> None:
        (folder / "triggers.toml").write_text(TRIGGERS)
        argv = [sys.executable, "-m", "enginectl", "watch", "--json", "--triggers", "triggers.toml", *words]
        self.child = subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, text=True)
        self.lines: list[dict[str, Any]] = []
        self._queue: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self._queue.put(json.loads(line))

    def until(self, seconds: float = 60.0, **fields: str) -> dict[str, Any]:
        """The next line with these fields."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                line = self._queue.get(timeout=left)
                self.lines.append(line)
                if all(line.get(key) == value for key, value in fields.items()):
                    return line
        raise AssertionError(f"no line with {fields} among {self.lines}")

    def end(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        try:
            return self.child.wait(timeout=30)
        finally:
            self.child.kill()
            self.child.wait()
            self._reader.join(10)
            assert self.child.stdout is not None
            self.child.stdout.close()


@pytest.fixture
def demo() -> Iterator[Demo]:
    with Demo("", "--concurrency", "4") as demo:
        assert demo.wait_for("load"), "the engine did not become ready"
        yield demo


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def metrics(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def back(path: Path) -> Recording:
    with path.open("rb") as stream:
        return read([(path.name, stream)])


def state_of(recording: Recording, pid: int) -> list[str | None]:
    return [p.os_state for s in recording.snapshots for p in s.processes if p.pid == pid]


def test_a_stop_is_caught_and_the_recording_holds_the_moment_before(demo: Demo, tmp_path: Path, wait_until) -> None:
    port = free_port()
    watch = Watch(
        tmp_path, "--pid", str(demo.pid), "--interval", "1", "--window", "10", "--listen", f"127.0.0.1:{port}"
    )
    try:
        watch.until(line="verdict", state="busy")
        assert 'enginectl_thread_state_ratio{role="engine-loop",wait_class="cpu"}' in metrics(port)
        os.kill(demo.pid, signal.SIGSTOP)
        stopped_at = time.monotonic()
        try:
            fired = watch.until(line="trigger", trigger="stopped")
            assert fired["culprit_pid"] == str(demo.pid)
            assert 'enginectl_finding{code="EC608"} 1.0' in metrics(port)
            watch.until(line="recording")
            wait_until(lambda: time.monotonic() - stopped_at >= STOPPED_SECONDS)
        finally:
            os.kill(demo.pid, signal.SIGCONT)
        watch.until(line="verdict", state="busy")
        assert (tmp_path / "told").read_text().split() == ["process-stopped", str(demo.pid), fired["recording"]]
    finally:
        code = watch.end()
    assert code == 0
    seen = back(tmp_path / fired["recording"])
    states = state_of(seen, demo.pid)
    assert states[0] != "T" and states[-1] == "T"
    first = states.index("T")
    assert first >= 1, "nothing of the time before"
    before = seen.snapshots[first - 1]
    assert any(t.frames for p in before.processes if p.pid == demo.pid for t in p.threads)
    assert oct((tmp_path / fired["recording"]).stat().st_mode & 0o777) == "0o600"
    assert len(list(tmp_path.glob("*.ecrec"))) == 1, "one episode, one recording"


def test_a_restart_is_followed_and_nothing_is_left_behind(tmp_path: Path, wait_until) -> None:
    port = free_port()
    seed = str(os.getpid())
    watch = Watch(tmp_path, "--name", rf"--seed {seed}\b", "--interval", "0.5", "--listen", f"127.0.0.1:{port}")
    try:
        watch.until(line="engine", event="missing")
        assert "enginectl_up 0.0" in metrics(port)
        pids = []
        for _ in range(2):
            with Demo("", "--no-load", "--model", "qwen3-embedding-tiny", "--seed", seed) as demo:
                pids.append(watch.until(line="engine", event="found")["pid"])
                assert demo.wait_for("ready")
                wait_until(lambda: 'role="engine-loop"' in metrics(port))
            gone = watch.until(line="trigger", trigger="gone")
            assert "enginectl_thread_state_ratio{" not in metrics(port)
            assert back(tmp_path / gone["recording"]).snapshots
        assert pids[0] != pids[1]
        own = psutil.Process(watch.child.pid)
        wait_until(lambda: not own.children(recursive=True))
    finally:
        assert watch.end() == 0


def test_wrong_uses_end_at_once(tmp_path: Path) -> None:
    def code(*words: str) -> int:
        argv = [sys.executable, "-m", "enginectl", "watch", *words]
        return subprocess.run(argv, capture_output=True, timeout=60, check=False, cwd=tmp_path).returncode

    assert code("--pid", str(1 << 22)) == 20
    assert code("--name", "(") == 2
    assert code("--triggers", "none.toml") == 2
    assert code("--dir", "none") == 2
    assert code("--listen", "nowhere") == 2
    assert code("--name", "matches nothing at all", "--duration", "0.5") == 0
