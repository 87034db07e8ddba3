"""The bundled engine as a child process: for selftest, the demo and the benchmarks."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

READY_SECONDS = 120.0


class Demo:
    """One `run-demo` child, with or without a fault, followed by its events. Usable as a context manager."""

    def __init__(self, fault: str = "", *options: str) -> None:
        argv = [sys.executable, "-m", "engine_core", "--json-events", *options]
        argv += ["--fault", fault] if fault else []
        self.child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        self.pid = 0
        self.frontend_pid = 0
        self.url = ""

    def events(self, deadline: float) -> Iterator[dict[str, Any]]:
        assert self.child.stdout is not None
        os.set_blocking(self.child.stdout.fileno(), False)
        buffer = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.child.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if not selector.select(timeout=0.5):
                    continue
                chunk = self.child.stdout.read() or b""
                if not chunk and self.child.poll() is not None:
                    return
                buffer += chunk
                *lines, buffer = buffer.split(b"\n")
                yield from (json.loads(line) for line in lines if line.startswith(b"{"))

    def __enter__(self) -> Demo:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_for(self, name: str) -> bool:
        """Whether this event came within the limit: `ready`, `load`, or `fault-active` once the condition holds."""
        for event in self.events(time.monotonic() + READY_SECONDS):
            if "engine_pid" in event:
                self.pid = int(event["engine_pid"])
                self.frontend_pid = int(event.get("frontend_pid", 0))
                self.url = str(event.get("url", self.url))
            if event.get("event") == name:
                return True
        return False

    def stop(self) -> None:
        """End the child; it ends its own children."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        if self.child.stdout:
            self.child.stdout.close()
