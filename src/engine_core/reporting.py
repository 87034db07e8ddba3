"""What run-demo prints: JSON events for programs, or a first block and a live line for people."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from engine_core.load import LoadStats

_PLAIN_LINE_EVERY_SECONDS = 5.0


class Reporter(Protocol):
    """Where the demo's news goes."""

    def event(self, name: str, **values: Any) -> None:
        """Something happened once."""

    def load(self, stats: LoadStats) -> None:
        """The load of the last seconds."""

    def close(self) -> None:
        """Nothing more will come."""


class JsonReporter:
    """One JSON object per line on stdout. `reader_gone` is called when nobody reads any more."""

    def __init__(self, reader_gone: Callable[[], None]) -> None:
        self.reader_gone = reader_gone
        self.unsent: deque[str] = deque()

    def event(self, name: str, **values: Any) -> None:
        """Print the event; when the pipe is full, later: a run must not stop because nobody reads."""
        if sys.stdout is None:
            return
        self.unsent.append(json.dumps({"event": name, **values}))
        try:
            while self.unsent and select.select([], [sys.stdout], [], 0)[1]:
                print(self.unsent.popleft(), flush=True)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())  # what is buffered has to go somewhere
            os.close(nowhere)
            self.reader_gone()

    def load(self, stats: LoadStats) -> None:
        """Print the rates, and latencies in seconds; nothing while older events are unsent."""
        if self.unsent:
            return
        self.event(
            "load",
            requests_per_second=round(stats.requests_per_second, 3),
            tokens_per_second=round(stats.tokens_per_second, 1),
            p50_seconds=stats.p50_seconds,
            p99_seconds=stats.p99_seconds,
            finished=stats.finished,
            failed=stats.failed,
            in_flight=stats.in_flight,
        )

    def close(self) -> None:
        """Nothing to do."""


class HumanReporter:
    """A first block with the pids, then one live line (every five seconds where stdout is no terminal)."""

    def __init__(self) -> None:
        self.live: Any = None
        self.printed = 0.0

    def event(self, name: str, **values: Any) -> None:
        """Print what a person needs to know."""
        if name == "starting":
            print(
                f"starting: front end pid {values['frontend_pid']}, engine_core pid {values['engine_pid']}", flush=True
            )
        elif name == "ready":
            print(
                f"ready at {values['url']}\n  front end    pid {values['frontend_pid']}\n"
                f"  engine_core  pid {values['engine_pid']}\n\n"
                f"look at it:  enginectl doctor --pid {values['engine_pid']}\nstop it:     Ctrl-C\n",
                flush=True,
            )
        elif name == "fault-active":
            self.close()
            print(f"fault active: {values['fault']}", flush=True)

    def load(self, stats: LoadStats) -> None:
        """Refresh the live line."""
        line = (
            f"{stats.requests_per_second:8.1f} requests/s {stats.tokens_per_second:10.0f} tokens/s   "
            f"p50 {_seconds(stats.p50_seconds)}   p99 {_seconds(stats.p99_seconds)}   "
            f"{stats.in_flight} waiting"
        )
        if sys.stdout.isatty():
            self._refresh(line)
        elif time.monotonic() - self.printed >= _PLAIN_LINE_EVERY_SECONDS:
            self.printed = time.monotonic()
            print(line, flush=True)

    def _refresh(self, line: str) -> None:
        if self.live is None:
            from rich.live import Live

            self.live = Live(auto_refresh=False)
            self.live.start()
        self.live.update(line, refresh=True)

    def close(self) -> None:
        """Leave the live line as it stands."""
        if self.live is not None:
            self.live.stop()
            self.live = None


def _seconds(value: float | None) -> str:
    return "     -" if value is None else f"{value:5.2f}s"


def make_reporter(json_events: bool, reader_gone: Callable[[], None]) -> Reporter:
    """The reporter asked for. A program that follows the events and has died wants the run no longer."""
    return JsonReporter(reader_gone) if json_events else HumanReporter()
