"""Progress on stderr while weights are made or loaded and while the model warms up."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

LINE_EVERY_SECONDS = 5.0


class StartupProgress:
    """A bar on a terminal, else a line every five seconds; nothing for work shorter than a second."""

    def __init__(self, description: str, total: int) -> None:
        self.description, self.total, self.done = description, max(total, 1), 0
        self.started = self.printed = time.monotonic()
        self.bar: Any = None

    def __enter__(self) -> StartupProgress:
        return self

    def advance(self, amount: int) -> None:
        """Add `amount` units of work done."""
        self.done += amount
        now = time.monotonic()
        if now - self.started < 1.0:
            return
        if sys.stderr.isatty():
            self._show_bar()
        elif now - self.printed >= LINE_EVERY_SECONDS:
            self.printed = now
            print(f"engine_core: {self.description}: {self.done / self.total:.0%}", file=sys.stderr, flush=True)

    def _show_bar(self) -> None:
        if self.bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.bar.start()
            self.task = self.bar.add_task(self.description, total=self.total)
        self.bar.update(self.task, completed=self.done)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
