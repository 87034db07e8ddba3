"""Fixtures for every test: golden files, waiting for a condition, and an environment that means the same everywhere."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "fixtures" / "golden"
T = TypeVar("T")


def pytest_configure() -> None:
    """A shell that starts the suite in the background lets it ignore Ctrl-C, and every process below it inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden reports")


@pytest.fixture(autouse=True)
def _same_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colour and option variables of the caller's shell do not reach the tests."""
    for name in ("NO_COLOR", "FORCE_COLOR", "ENGINECTL_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a whole report with its file, or rewrites the file."""

    def compare(name: str, report: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden", default=False):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(report, encoding="utf-8")
        assert path.exists(), f"{path.name} is missing: make golden"
        assert report == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def wait_until() -> Callable[[Callable[[], T]], T]:
    """Ask again and again, with growing pauses, until the answer is true; fail after `deadline` seconds."""

    def wait(predicate: Callable[[], T], deadline: float = 30.0, longest_pause: float = 0.25) -> T:
        end, pause = time.monotonic() + deadline, min(0.002, longest_pause)
        while True:
            value = predicate()
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"not within {deadline:g} s: {predicate}")
            time.sleep(pause)
            pause = min(pause * 2, longest_pause)

    return wait
