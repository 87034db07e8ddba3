"""The left side: processes as a tree, with their roles."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.text import Text

from enginectl.model.diagnosed import ProcessRow
from enginectl.render import words
from enginectl.top.draw.style import ALARM, DIM, fit
from enginectl.top.rows import CULPRIT, mark_of
from enginectl.top.screenful import Screenful


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """One process and how deep it hangs."""

    process: ProcessRow
    depth: int


def branches(screen: Screenful) -> tuple[Branch, ...]:
    """All processes, children below their parents, in the order of their pids."""
    rows = {row.pid: row for row in (screen.diagnosis.processes if screen.diagnosis else ())}
    parents = {fact.pid: fact.parent_pid for fact in screen.moment.processes}

    def below(parent: int | None, depth: int) -> Iterator[Branch]:
        """The processes under one, None for the top."""
        for pid in sorted(rows):
            above = parents.get(pid)
            if (above if above in rows and above != pid else None) == parent:
                yield Branch(process=rows[pid], depth=depth)
                yield from below(pid, depth + 1)

    return tuple(below(None, 0))


def tree(screen: Screenful, width: int, only_pid: int | None) -> list[Text]:
    """One line for all of them, then one a process; the one that the table is restricted to carries a dot."""
    lines = [Text(fit(f"{'•' if only_pid is None else ' '} all processes", width), no_wrap=True)]
    return lines + [_line(screen, branch, width, only_pid) for branch in branches(screen)]


def _line(screen: Screenful, branch: Branch, width: int, only_pid: int | None) -> Text:
    row = branch.process
    mark = mark_of(screen.diagnosis, row.pid, None) if screen.diagnosis else ""
    dot = "•" if row.pid == only_pid else (mark or " ")
    rank = f" r{row.rank}" if row.rank is not None else ""
    state = words.os_state(screen.moment.os_states.get(row.pid, row.os_state)).upper()
    pid = str(row.pid) if row.pid > 0 else ""
    right = state or pid
    if width >= 34 and not state:
        right = f"{pid} {words.ratio(row.cpu_ratio):>5}"
    elif state and width >= 34:
        right = f"{pid} {state}"
    name = f"{dot} {'  ' * min(branch.depth, 3)}{words.clean(row.role) or 'process'}{rank}"
    line = Text(fit(name, width - len(right) - 1), no_wrap=True)
    line.append(f" {right}", ALARM if state else DIM)
    if mark == CULPRIT:
        line.stylize(ALARM, 0, 2)
    return line
