"""Below: when the verdict changed, newest first."""

from __future__ import annotations

from rich.text import Text

from enginectl.render import words
from enginectl.top.draw.style import BANNER_STYLES, DIM, OPEN_STYLE, fit
from enginectl.top.screenful import Screenful, clock


def log(screen: Screenful, width: int) -> list[Text]:
    """One line a change: time, state, finding, and the sentence where there is room."""
    return [_line(change.taken_at, change.at, change.state, change.finding, change.summary, width)
            for change in reversed(screen.log)] or [Text("no verdict yet", DIM)]  # fmt: skip


def _line(taken_at: str, at: float, state: str, finding: str, summary: str, width: int) -> Text:
    line = Text(no_wrap=True)
    line.append(f"{clock(taken_at, at)} ", DIM)
    line.append(f" {fit(state.upper(), 8)}", BANNER_STYLES.get(state, OPEN_STYLE))
    line.append(f" {words.clean(finding)}")
    if width >= 60:
        line.append(f"  {words.clean(summary)}", DIM)
    line.truncate(width, overflow="ellipsis")
    return line
