"""What a fact is: one named measurement with its unit and source. `facts.py` gathers all of them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from enginectl.diagnose.measures import Measures

Value = float | str | bool | None
Measure = Callable[[Measures, str, str], Value]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One named measurement: unit, the source without which it is None, and its meaning in plain words."""

    name: str
    unit: str
    source: str
    meaning: str
    measure: Measure


FACTS: dict[str, Fact] = {}


def fact(name: str, unit: str, source: str, meaning: str) -> Callable[[Measure], Measure]:
    """Registers a measurement `(measures, of, wait) -> value` under its name."""

    def add(measure: Measure) -> Measure:
        FACTS[name] = Fact(name=name, unit=unit, source=source, meaning=meaning, measure=measure)
        return measure

    return add
