"""A live server per model, started once for the tests that use it, and ended with everything it left."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "src"
READY_SECONDS = 90.0


def environment() -> dict[str, str]:
    """The caller's environment with this tree's packages first, and no hub."""
    return {**os.environ, "PYTHONPATH": str(SOURCE), "HF_HUB_OFFLINE": "1"}


@dataclass
class Program:
    """A started program that prints one JSON event per line."""

    process: subprocess.Popen[str]

    def wait_for(self, name: str, seconds: float = READY_SECONDS) -> dict[str, Any]:
        """The next event of that name; fails when the program ends or stays silent first."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                line = self.process.stdout.readline()
                assert line, f"ended before {name!r}, exit status {self.process.wait()}"
                event: dict[str, Any] = json.loads(line)
                if event["event"] == name:
                    return event
        raise AssertionError(f"no event {name!r} within {seconds:g} s")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(20)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()


def start(module: str, *arguments: str) -> Program:
    """Start `python -m MODULE` with JSON events."""
    command = [sys.executable, "-u", "-m", module, "--json-events", *arguments]
    return Program(
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            stdin=subprocess.DEVNULL,
            env=environment(),
        )
    )


@dataclass
class Server:
    """A ready front end and its engine core."""

    url: str
    pid: int
    engine_pid: int

    def request(self, path: str, body: Any = None) -> tuple[int, bytes]:
        """GET, or POST with a body; the status and the answer."""
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data), timeout=60) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def post(self, path: str, **body: Any) -> Any:
        """POST that must succeed; the decoded answer."""
        status, answer = self.request(path, body)
        assert status == 200, answer
        return json.loads(answer)

    def metric(self, name: str, **labels: str) -> float:
        """One sample's value, 0 while it does not exist."""
        from prometheus_client.parser import text_string_to_metric_families

        for family in text_string_to_metric_families(self.request("/metrics")[1].decode()):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return 0.0


@contextlib.contextmanager
def serving(model: str, *arguments: str) -> Iterator[Server]:
    """A server for the length of a block."""
    program = start("engine_core.frontend", "--model", model, "--port", "0", *arguments)
    try:
        event = program.wait_for("ready")
        yield Server(event["url"], program.process.pid, event["engine_pid"])
    finally:
        program.end()


@pytest.fixture(scope="session")
def generator() -> Iterator[Server]:
    """qwen3-tiny."""
    with serving("qwen3-tiny", "--max-num-batched-tokens", "64") as server:
        yield server


@pytest.fixture(scope="session")
def embedder() -> Iterator[Server]:
    """qwen3-embedding-tiny, with the model on its own thread."""
    with serving("qwen3-embedding-tiny", "--worker-use-thread") as server:
        yield server


@pytest.fixture
def gone(wait_until: Callable[..., Any]) -> Callable[[int], None]:
    """Wait until a process has ended."""
    return lambda pid: wait_until(lambda: not Path(f"/proc/{pid}").exists(), 15.0)
