"""The paced loop: snapshots of one observation, at a rate, into a writer."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from threading import Event
from typing import Protocol

from enginectl.model.observed import Recording, Snapshot
from enginectl.record.write import Writer

FULL_SECONDS = 0.5
"""Counters and the slower host facts are read at most this often."""
JITTER = 0.2


class Observed(Protocol):
    """What is recorded: an `Observation`."""

    def take(self, *, with_ends: bool = True) -> Snapshot:
        """One snapshot now."""

    def recording(self) -> Recording:
        """Everything but the snapshots."""


class Pace(Protocol):
    """How a stop is asked for; `threading.Event` is one."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait, and tell whether to stop."""

    def is_set(self) -> bool:
        """Whether to stop."""


def record_into(
    writer: Writer,
    observed: Observed,
    *,
    duration_seconds: float,
    rate_hertz: float,
    stop: Pace | None = None,
    seen: Callable[[Snapshot], None] | None = None,
) -> None:
    """Take snapshots until `duration_seconds` are over (0: until `stop`), the first and the last with counters.

    Intervals are jittered, so that they cannot lock in phase with a step; a slow snapshot delays the next one.
    Errors: NoSuchProcess when the target is gone; what was written until then stays.
    """
    pace: Pace = stop or Event()
    began = due = full_at = time.monotonic()
    end = began + duration_seconds if duration_seconds else math.inf
    step, last = 1.0 / rate_hertz, False
    while not last:
        now = time.monotonic()
        last = pace.is_set() or now >= end
        with_ends = writer.count == 0 or last or now - full_at >= FULL_SECONDS
        writer.add(snapshot := observed.take(with_ends=with_ends))
        full_at = now if with_ends else full_at
        if seen:
            seen(snapshot)
        due = max(due + step, time.monotonic())
        until = due + random.uniform(-JITTER, JITTER) * step
        if not last:
            pace.wait((until if until < end - step / 2 else end) - time.monotonic())
