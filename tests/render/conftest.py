"""The golden files: complete reports compared whole, rewritten with `pytest tests/render --update-golden`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "fixtures" / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden reports")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a whole report with its file, or rewrites the file."""

    def compare(name: str, report: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden", default=False):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(report, encoding="utf-8")
        assert path.exists(), f"{path.name} is missing: pytest tests/render --update-golden"
        assert report == path.read_text(encoding="utf-8")

    return compare
