"""Ends a long observation by signal or by deadline, in order: what is being written is finished first."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stop_by_signal() -> Iterator[threading.Event]:
    """An event that SIGINT, SIGTERM or SIGHUP sets; a second SIGINT ends the program at once.

    Outside the main thread, and where a signal is ignored (`nohup`), nothing is changed.
    """
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    main = threading.current_thread() is threading.main_thread()
    wanted = [s for s in SIGNALS if signal.getsignal(s) is not signal.SIG_IGN] if main else []
    before = {number: signal.signal(number, ask) for number in wanted}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Deadline:
    """A stop event that also counts as set when another round like the longest so far would end too late."""

    def __init__(self, stop: threading.Event, at: float) -> None:
        self._stop = stop
        self._at = at
        self._asked = time.monotonic()
        self._longest = 0.0

    def is_set(self) -> bool:
        """Whether to stop now."""
        return self._stop.is_set() or time.monotonic() + self._longest >= self._at

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the timeout, the stop or the deadline, whichever is first; tells whether to stop."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._asked)
        left = max(0.0, self._at - self._longest - now)
        self._stop.wait(left if timeout is None else min(left, max(0.0, timeout)))
        self._asked = time.monotonic()
        return self.is_set()
