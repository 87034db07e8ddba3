"""The right side: the table of threads."""

from __future__ import annotations

import math

import msgspec
from rich.text import Text

from enginectl.render import words
from enginectl.top.draw.frames import frame_line
from enginectl.top.draw.style import ALARM, CLASSES, DIM, TROUBLE, fit, legend, of_class, share_bar
from enginectl.top.moment import Pace
from enginectl.top.rows import CULPRIT, Row, Table
from enginectl.top.screenful import Screenful, shares

_NUMBER = 4


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Widths of the columns; 0 leaves one out."""

    role: int
    name: int
    bar: int
    wait: int
    process: int = 0


def columns(width: int) -> Columns:
    """What fits into `width`: the name from 84 columns on, the process from 110 on, the bar and the place grow."""
    process = 16 if width >= 110 else 0
    name = 16 if width >= 84 else 0
    role = 15
    left = width - 2 - role - 3 * _NUMBER - (name + 1 if name else 0) - (process + 1 if process else 0) - 2
    bar = max(8, min(36, left * 2 // 5))
    return Columns(role=role, name=name, bar=bar, wait=max(6, left - bar), process=process)


def heading(width: int) -> Text:
    """The names of the columns."""
    c = columns(width)
    cells = [fit("ROLE", c.role)]
    cells += [fit("THREAD", c.name)] if c.name else []
    cells += [fit("PROCESS", c.process)] if c.process else []
    cells += [fit("LAST 60 S", c.bar), fit("WHERE NOW", c.wait)]
    text = "  " + " ".join(cells) + "".join(f"{name:>{_NUMBER}}" for name in ("CPU", "GIL", "RQ"))
    return Text(text[:width], DIM, no_wrap=True)


def threads(screen: Screenful, table: Table, width: int) -> list[Text]:
    """One line a thread: role, state over the last minute, where it stands, CPU, GIL and run queue in percent."""
    return [_line(screen, row, columns(width)) for row in table.rows]


def title(table: Table, sort: str, process: str, pace: Pace | None = None) -> str:
    """What the table shows, in which order, and how often the stacks are read."""
    hidden = f", {words.plural(table.hidden, 'helper')} hidden" if table.hidden else ""
    often = f", stacks every {words.seconds(pace.stack_seconds)}" if pace else ""
    return f"THREADS{f' of {process}' if process else ''}  by {sort}{hidden}{often}"


def footer(screen: Screenful, table: Table, width: int) -> Text:
    """The letters of the classes that are on the screen."""
    seen = {name for row in table.rows for name in shares(screen, row.node)}
    return legend(seen or set(CLASSES), width)


def stack_below(row: Row, width: int) -> list[Text]:
    """The stack of the thread under the cursor, for the room that the table leaves."""
    if not row.thread.frames:
        return []
    head = Text(fit(f"STACK of {row.thread.role}, innermost first: {row.thread.meaning}", width), DIM)
    return [Text(""), head, *(frame_line(frame, width) for frame in row.thread.frames)]


def _line(screen: Screenful, row: Row, c: Columns) -> Text:
    line = Text(no_wrap=True)
    line.append(f"{row.mark or ' '} ", ALARM if row.mark == CULPRIT else TROUBLE)
    rank = f" r{row.process.rank}" if row.process.rank is not None else ""
    role = row.thread.role if c.process else row.thread.role[: c.role - len(rank)] + rank
    line.append(fit(role, c.role) + " ", "bold" if row.mark else "")
    if c.name:
        line.append(fit(words.thread_name(row.thread.name), c.name) + " ")
    if c.process:
        line.append(fit(f"{words.clean(row.process.role)}{rank}", c.process) + " ", DIM)
    line.append_text(share_bar(shares(screen, row.node), c.bar))
    line.append(" ")
    line.append_text(_where(screen, row, c.wait))
    for value in (row.cpu_ratio, row.thread.gil_ratio, row.runqueue_ratio):
        line.append(f"{_percent(value):>{_NUMBER}}", DIM if not value or value < 0.005 else "")
    return line


def _where(screen: Screenful, row: Row, width: int) -> Text:
    state = words.os_state(screen.moment.os_states.get(row.process.pid, row.process.os_state))
    if state in ("stopped", "traced", "zombie", "gone"):
        return Text(fit(f"{state.upper()} {place(row)}", width), ALARM)
    point = place(row)
    letter = of_class(row.thread.wait_class)
    return Text(fit(f"{letter.letter} {point}", width), "bold" if row.mark else "")


def place(row: Row) -> str:
    """The wait point without the engine's name, or the innermost frame of a place that nobody knows."""
    point = row.thread.wait_point
    if point in ("", "unknown"):
        return words.clean(row.thread.frames[0].partition(" ")[0]) if row.thread.frames else "no Python frame"
    return words.clean(point.removeprefix(f"{row.process.engine}.") if row.process.engine else point)


def _percent(value: float | None) -> str:
    return words.UNREAD if value is None or not math.isfinite(value) else f"{value * 100:.0f}"
