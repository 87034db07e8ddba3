"""Numbers with their units, and the phrases of the reports."""

from __future__ import annotations

import math

import pytest

from enginectl.model.diagnosed import Evidence
from enginectl.render import words


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (math.nan, "-"), (0.0, "0%"), (0.725, "72%"), (1.0, "100%"), (0.004, "0.4%"), (0.00001, "0.1%"),
     (0.9999, "99.9%"), (1.5, "150%")],
)  # fmt: skip
def test_ratio_never_rounds_to_none_or_all(value: float | None, shown: str) -> None:
    assert words.ratio(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0.0, "0 s"), (0.0002, "under 1 ms"), (0.011, "11 ms"), (0.9999, "1 s"), (2.31, "2.3 s"),
     (59.99, "1 min"), (303.0, "5 min 3 s"), (7800.0, "2 h 10 min")],
)  # fmt: skip
def test_seconds(value: float | None, shown: str) -> None:
    assert words.seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(None, "ratio", "not read"), (True, "", "yes"), ("device", "", "device"), (0.94, "cores", "0.94 cores"),
     (1812.4, "1/s", "1812/s"), (12.4, "s", "12.4 s"), (64_530_000_000, "bytes", "60.1 GiB"), (41, "percent", "41%"),
     (3, "count", "3"), (8, "requests", "8 requests")],
)  # fmt: skip
def test_quantity(value: words.Value, unit: str, shown: str) -> None:
    assert words.quantity(value, unit) == shown


@pytest.mark.parametrize(
    ("op", "value", "threshold", "unit", "shown"),
    [(">=", 0.7, 0.5, "ratio", "at least 50%"), ("==", True, True, "", ""), ("==", False, True, "", "exactly yes"),
     ("in", "lock", "lock|gil", "", "one of lock or gil"), ("<", 7, 8, "requests", "less than 8")],
)  # fmt: skip
def test_threshold(op: str, value: words.Value, threshold: words.Value, unit: str, shown: str) -> None:
    assert words.threshold(Evidence(fact="f", op=op, value=value, threshold=threshold, unit=unit)) == shown


def test_a_role_is_named_once() -> None:
    named = Evidence(fact="f", of="engine-loop", meaning="the engine loop moved")
    unnamed = Evidence(fact="f", of="engine-loop", meaning="share of samples in scheduling")
    assert words.fact(named) == "the engine loop moved"
    assert words.fact(unnamed) == "share of samples in scheduling, engine-loop"


def test_lists_and_spans() -> None:
    assert words.listing(["a", "b", "c"]) == "a, b or c"
    assert words.spans([4, 0, 1, 2, 7]) == "0-2, 4, 7"
    assert words.plural(1, "process", "processes") == "1 process"
    assert words.thread_name("Thread-3 (process_input_sockets)") == "process_input_sockets"
