"""Letters and colours of the wait classes, bars and sparklines.

Every class has a letter of its own, so that nothing rests on colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from rich.text import Text

from enginectl.render import words

_STEPS = "▁▂▃▄▅▆▇█"


class ClassStyle(msgspec.Struct, frozen=True):
    """How a wait class looks: its letter, its colours, and one word for the legend."""

    letter: str
    style: str
    word: str


CLASSES: dict[str, ClassStyle] = {
    "cpu": ClassStyle("#", "#000000 on #6fbf5f", "runs"),
    "device": ClassStyle("D", "#ffffff on #3a6fd8", "device"),
    "collective": ClassStyle("C", "#ffffff on #9a4fc4", "other ranks"),
    "peer": ClassStyle("P", "#000000 on #d7af3f", "peer"),
    "lock": ClassStyle("L", "#ffffff on #c23b3b", "lock"),
    "gil": ClassStyle("G", "#000000 on #e8853a", "GIL"),
    "ipc-send": ClassStyle("S", "#ffffff on #b0407c", "cannot send"),
    "io": ClassStyle("I", "#000000 on #4fb3b3", "file or net"),
    "startup": ClassStyle("+", "#000000 on #8fb8d8", "starting"),
    "shutdown": ClassStyle("x", "#ffffff on #6a5050", "ending"),
    "timer": ClassStyle("z", "#c0c0c0 on #444444", "sleeps"),
    "stopped": ClassStyle("T", "#ffffff on #b52a2a", "stopped"),
    "idle": ClassStyle(".", "#a0a0a0 on #303030", "idle"),
    "unknown": ClassStyle("?", "#000000 on #c8c8c8", "unknown"),
}
BANNER_STYLES = {
    "hung": "bold #ffffff on #b52a2a",
    "crashed": "bold #ffffff on #b52a2a",
    "gone": "bold #ffffff on #b52a2a",
    "slow": "bold #000000 on #d7af3f",
    "starting": "bold #000000 on #8fb8d8",
    "busy": "bold #000000 on #6fbf5f",
    "idle": "bold #000000 on #6fbf5f",
}
OPEN_STYLE = "bold #000000 on #c8c8c8"
DIM = "#9a9a9a"
ALARM = "bold #ff6b6b"
TROUBLE = "#ffd75f"


def of_class(name: str) -> ClassStyle:
    """The look of a wait class; that of `unknown` for any other name."""
    return CLASSES.get(name, CLASSES["unknown"])


def cells(shares: Mapping[str, float], width: int) -> tuple[tuple[str, int], ...]:
    """Shares that add up to 1 -> (class, cells), in the order of `CLASSES`, adding up to `width`.

    A class that was seen gets a cell as long as there are enough: a rare wait stays visible.
    """
    order = list(CLASSES)
    names = sorted((n for n in shares if shares[n] > 0), key=lambda n: order.index(n) if n in order else len(order))
    if not names or width < 1:
        return ()
    names = sorted(sorted(names, key=lambda n: -shares[n])[:width], key=names.index)
    whole = sum(shares[n] for n in names)
    counts = {n: max(1, int(shares[n] / whole * width)) for n in names}
    while (left := width - sum(counts.values())) != 0:
        missing = {n: shares[n] / whole * width - counts[n] for n in names if left > 0 or counts[n] > 1}
        best = max(missing, key=lambda n: missing[n] if left > 0 else -missing[n])
        counts[best] += 1 if left > 0 else -1
    return tuple((n, counts[n]) for n in names)


def share_bar(shares: Mapping[str, float], width: int) -> Text:
    """The stacked bar of one thread, `width` cells wide; blank when nothing was seen."""
    bar = Text(no_wrap=True)
    for name, count in cells(shares, width):
        bar.append(of_class(name).letter * count, of_class(name).style)
    bar.append(" " * (width - len(bar.plain)))
    return bar


def sparkline(values: Sequence[float | None], width: int, maximum: float | None = None) -> str:
    """The newest `width` values as steps, a gap where nothing was read; `maximum` None is the largest value."""
    newest = [v if v is not None and math.isfinite(v) else None for v in list(values)[-width:]] if width > 0 else []
    known = [v for v in newest if v is not None]
    top = maximum or max(known, default=0.0)
    steps = [
        " " if v is None else _STEPS[0] if top <= 0 else _STEPS[round(7 * max(0.0, min(1.0, v / top)))] for v in newest
    ]
    return "".join(steps).rjust(width)


def fit(text: object, width: int) -> str:
    """Safe text in exactly `width` columns, cut with an ellipsis."""
    plain = Text(words.clean(text), no_wrap=True)
    plain.truncate(max(0, width), overflow="ellipsis", pad=True)
    return plain.plain


def wrap(text: object, width: int, limit: int) -> list[str]:
    """Safe text broken at words into at most `limit` lines; the last one is cut with an ellipsis."""
    import textwrap

    return textwrap.wrap(words.clean(text), max(10, width), max_lines=limit, placeholder=" …") if limit > 0 else []


def legend(names: Iterable[str], width: int) -> Text:
    """The letters of these classes with their words, as many as fit."""
    line = Text(no_wrap=True)
    present = set(names)
    for name, look in CLASSES.items():
        if name not in present or len(line.plain) + len(look.word) + 4 > width:
            continue
        line.append(f"{look.letter}", look.style)
        line.append(f" {look.word}  ", DIM)
    return line
