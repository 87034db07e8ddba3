"""What `top` itself costs: CPU of this process and of its stack reader, measured, and the pace that follows from it."""

from __future__ import annotations

import resource
import time
from collections import deque

from enginectl.top.moment import Pace
from enginectl.top.pace import Pacer

SPAN_SECONDS = 30.0
WARM_UP_SECONDS = 8.0
"""Starting up is not counted: it happens once."""


def cpu_seconds() -> float:
    """CPU seconds of this process and of the helpers it has waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


class Meter:
    """Measures looks at the stacks and everything in between. `interval_seconds` is the time to the next look."""

    def __init__(self) -> None:
        self._pacer = Pacer()
        self._began = time.monotonic()
        self._marks: deque[tuple[float, float]] = deque()

    @property
    def interval_seconds(self) -> float:
        """Seconds from one look to the next."""
        return self._pacer.interval_seconds

    def looked(self, began: float, cpu_before: float, pause_seconds: float) -> None:
        """A look has ended that began at this monotonic time, with so many CPU seconds used before it."""
        now, total = time.monotonic(), cpu_seconds()
        spent = total - cpu_before
        self._pacer.look_cost(cpu_seconds=spent, wall_seconds=now - began, pause_seconds=pause_seconds)
        if now - self._began < WARM_UP_SECONDS:
            return
        if self._marks and now > self._marks[-1][0]:
            at, before = self._marks[-1]
            self._pacer.overhead(max(0.0, total - before - spent) / (now - at))
        self._marks.append((now, total))
        while len(self._marks) > 2 and self._marks[0][0] < now - SPAN_SECONDS:
            self._marks.popleft()

    def pace(self, pause_seconds: float) -> Pace:
        """The pace and the cost for the screen."""
        ratio: float | None = None
        if len(self._marks) > 1:
            (began, before), (ended, after) = self._marks[0], self._marks[-1]
            ratio = (after - before) / (ended - began)
        return Pace(stack_seconds=self.interval_seconds, own_cpu_ratio=ratio, pause_seconds=pause_seconds)
