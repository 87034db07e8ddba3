"""How often to read stacks: as often as the budget of CPU time and the target's peace allow."""

from __future__ import annotations

BUDGET_RATIO = 0.024
"""Cores that the view with its stack reader may use on average."""
PAUSE_RATIO = 0.02
"""Share of time that the target may stand still for it."""
FLOOR_SECONDS = 1.0
CEILING_SECONDS = 20.0
WALL_SHARE = 0.2
"""A look that takes long because the host is busy is repeated after five times as long."""
SMOOTHING = 0.25
OVERHEAD_SMOOTHING = 0.05


class Pacer:
    """Turns measured costs into the time until the next look at the stacks."""

    def __init__(self) -> None:
        self._cpu: float | None = None
        self._pause = 0.0
        self._wall = 0.0
        self._overhead = 0.006

    def look_cost(self, *, cpu_seconds: float, wall_seconds: float, pause_seconds: float) -> None:
        """Note what one look cost."""
        self._cpu = cpu_seconds if self._cpu is None else _mix(self._cpu, cpu_seconds, SMOOTHING)
        self._pause = _mix(self._pause, pause_seconds, SMOOTHING)
        self._wall = max(wall_seconds, _mix(self._wall, wall_seconds, SMOOTHING))

    def overhead(self, cpu_ratio: float) -> None:
        """Note the cores used by everything else: drawing, keys, the light reads in between."""
        self._overhead = _mix(self._overhead, cpu_ratio, OVERHEAD_SMOOTHING)

    @property
    def interval_seconds(self) -> float:
        """Seconds from one look at the stacks to the next, between `FLOOR_SECONDS` and `CEILING_SECONDS`."""
        if self._cpu is None:
            return FLOOR_SECONDS
        left = max(0.2 * BUDGET_RATIO, BUDGET_RATIO - self._overhead)
        wanted = max(self._cpu / left, self._pause / PAUSE_RATIO, self._wall / WALL_SHARE)
        return min(CEILING_SECONDS, max(FLOOR_SECONDS, wanted))


def _mix(before: float, now: float, share: float) -> float:
    return before + share * (now - before)
