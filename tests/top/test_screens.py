"""What the screen looks like, at named sizes: SVG snapshots, compared whole.

After a wanted change: `pytest tests/top/test_screens.py --snapshot-update`, then look at each file that changed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version as textual_version
from typing import Any

import pytest
from tests.top import scenes

from enginectl.top.moment import Choice

DRAWN_WITH = "8.2"
"""The Textual release line whose drawing the snapshot files hold; another one draws the same screen differently."""
pytestmark = pytest.mark.skipif(
    not textual_version("textual").startswith(DRAWN_WITH + "."),
    reason=f"the snapshots were drawn with Textual {DRAWN_WITH}",
)
SIZES = {"small": (80, 24), "usual": (100, 30), "wide": (160, 50)}
Compare = Callable[..., bool]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["device-hang", "deadlock", "compute-bound", "collective-hang"])
def test_engine(snap_compare: Compare, name: str, size: str) -> None:
    assert snap_compare(scenes.app(scenes.story(name)), terminal_size=SIZES[size], run_before=scenes.settled)


@pytest.mark.parametrize("name", ["undecided", "attach-denied", "process-stopped", "scheduler-bound"])
def test_other_verdicts(snap_compare: Compare, name: str) -> None:
    assert snap_compare(scenes.app(scenes.story(name)), terminal_size=SIZES["small"], run_before=scenes.settled)


@pytest.mark.parametrize("size", ["small", "wide"])
def test_eight_ranks(snap_compare: Compare, size: str) -> None:
    assert snap_compare(scenes.app(scenes.many_ranks()), terminal_size=SIZES[size], run_before=scenes.settled)


def test_gone(snap_compare: Compare) -> None:
    assert snap_compare(scenes.app(scenes.gone()), terminal_size=SIZES["small"], run_before=scenes.settled)


def test_first_seconds(snap_compare: Compare) -> None:
    assert snap_compare(scenes.app([]), terminal_size=SIZES["small"], run_before=scenes.settled)


def test_without_colour(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(
        scenes.app(scenes.story("device-hang")), terminal_size=SIZES["usual"], run_before=scenes.settled
    )


def pressing(*keys: str) -> Callable[[Any], Any]:
    async def run(pilot: Any) -> None:
        await scenes.settled(pilot)
        await pilot.press(*keys)
        await scenes.settled(pilot)

    return run


KEYS = {
    "stack": ["enter"],
    "chain": ["c"],
    "help": ["question_mark"],
    "native": ["n"],
    "one-process": ["tab", "down", "down", "enter"],
    "paused-earlier": ["p", *["left"] * 25],
    "helpers-by-cpu": ["f", "s"],
}


@pytest.mark.parametrize("name", KEYS)
def test_after_keys(snap_compare: Compare, name: str) -> None:
    app = scenes.app(scenes.story("device-hang"))
    assert snap_compare(app, terminal_size=SIZES["usual"], run_before=pressing(*KEYS[name]))


def test_replay(snap_compare: Compare) -> None:
    app = scenes.app(scenes.story("deadlock"), live=False)
    assert snap_compare(app, terminal_size=SIZES["usual"], run_before=pressing("end"))


def test_picker(snap_compare: Compare) -> None:
    choices = (
        Choice(
            pid=4310, engine="vllm", title="vllm serve Qwen/Qwen3-0.6B --port 8000", processes=3, uptime_seconds=7810
        ),
        Choice(
            pid=977,
            engine="sglang",
            title="python -m sglang.launch_server --model-path m",
            processes=4,
            uptime_seconds=61,
        ),
    )
    assert snap_compare(scenes.app([], choices=choices), terminal_size=SIZES["small"], run_before=scenes.settled)
