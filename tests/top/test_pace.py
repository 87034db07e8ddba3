"""How often stacks are read."""

from __future__ import annotations

import pytest

from enginectl.top.pace import BUDGET_RATIO, CEILING_SECONDS, FLOOR_SECONDS, PAUSE_RATIO, Pacer


def pacer(times: int = 40, overhead: float = 0.006, **cost: float) -> Pacer:
    one = Pacer()
    for _ in range(times):
        one.look_cost(**({"cpu_seconds": 0.03, "wall_seconds": 0.05, "pause_seconds": 0.005} | cost))
        one.overhead(overhead)
    return one


def test_the_first_look_is_followed_soon() -> None:
    assert Pacer().interval_seconds == FLOOR_SECONDS


@pytest.mark.parametrize("cpu", [0.005, 0.03, 0.1, 0.2])
@pytest.mark.parametrize("overhead", [0.002, 0.008, 0.015])
def test_the_budget_is_kept(cpu: float, overhead: float) -> None:
    interval = pacer(cpu_seconds=cpu, overhead=overhead).interval_seconds
    assert cpu / interval + overhead <= BUDGET_RATIO * 1.05 or interval == CEILING_SECONDS


def test_a_cheap_engine_is_read_every_second() -> None:
    assert pacer(cpu_seconds=0.01).interval_seconds == FLOOR_SECONDS


def test_the_target_is_left_in_peace() -> None:
    assert 0.2 / pacer(pause_seconds=0.2).interval_seconds <= PAUSE_RATIO * 1.01


def test_a_slow_look_lowers_the_rate_at_once() -> None:
    one = pacer()
    before = one.interval_seconds
    one.look_cost(cpu_seconds=0.03, wall_seconds=1.0, pause_seconds=0.005)
    assert one.interval_seconds == pytest.approx(5.0) and before < 3


def test_it_never_stops_looking() -> None:
    assert pacer(cpu_seconds=60.0, overhead=1.0).interval_seconds == CEILING_SECONDS
