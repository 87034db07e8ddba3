"""The parts of the text report that show threads: the chain, the table of each process, the stacks."""

from __future__ import annotations

import re

from enginectl.model.diagnosed import Diagnosis, ThreadRow
from enginectl.render import words
from enginectl.render.chain import LOOK_HERE, ChainStep, find_process, find_thread, view_chain
from enginectl.render.lines import Line, cut, pad, paragraph, spread, width_of
from enginectl.render.threads import folded_note, group_processes, split_quiet

FRAMES_SHOWN = 8
_FRAME = re.compile(r"(.*?)\s*\((.*)\)$")
_HEADERS = ("Role", "Thread", "State", "Wait point", "CPU%", "GIL%", "RunQ%")
_SHRINK_ORDER = ((1, 15), (3, 0), (1, 10), (3, 18), (0, 10), (2, 7))


def chain_lines(diagnosis: Diagnosis, width: int) -> list[Line]:
    """Who waits for whom, each step below the one that waits for it."""
    view = view_chain(diagnosis)
    lines: list[Line] = []
    for depth, step in enumerate(view.steps):
        lines.extend(_step(step, depth, width))
    if view.steps and view.back_to is not None:
        again = view.steps[view.back_to]
        text = f"back to {again.label}: a cycle, each waits for the next, none can move"
        margin = _margin(len(view.steps))
        lines.extend(paragraph(text, width, first=f"{margin}-> ", rest=f"{margin}   ", style="bold red"))
    culprit = diagnosis.verdict.culprit
    if lines and culprit and diagnosis.verdict.outcome == "decided" and not any(s.is_target for s in view.steps):
        who = words.process(culprit.process_role, culprit.pid, culprit.rank)
        who += f", {words.clean(culprit.thread_role)}" if culprit.thread_role else ""
        lines.append(spread(f"  held up by {who}", LOOK_HERE, width, right_style="bold"))
    return lines


def _margin(depth: int) -> str:
    return "  " + "   " * (min(depth, 8) - 1 if depth else 0)


def _step(step: ChainStep, depth: int, width: int) -> list[Line]:
    margin = _margin(depth)
    style = "bold" if step.is_target else ""
    lines = [
        spread(margin + ("-> " if depth else "") + step.label, step.mark, width, left_style=style, right_style=style)
    ]
    inner = margin + ("   " if depth else "") + "  "
    link = step.link
    told = ""
    if link.waits_for:
        told = f"waits for {words.awaited(link.waits_for)}"
        told += f", through {words.clean(link.through)}" if link.through else ""
    if step.is_target or not told:
        meaning = words.clean(link.meaning).rstrip(".") or words.wait_class(link.wait_class)
        lines.extend(paragraph(meaning, width, first=inner, rest=inner))
    return lines + (paragraph(told, width, first=inner, rest=inner, style="dim") if told else [])


def thread_lines(diagnosis: Diagnosis, width: int, *, verbose: bool = False) -> list[Line]:
    """One table per process (or per group of equal processes); the culprit's row starts with ">"."""
    groups, quiet = split_quiet(group_processes(diagnosis, verbose=verbose))
    columns = _columns([row for group in groups for row in group.shown], width)
    culprit = diagnosis.verdict.culprit if diagnosis.verdict.outcome == "decided" else None
    lines: list[Line] = [((_table_row(_HEADERS, columns, " ", width), "dim"),)] if any(g.shown for g in groups) else []
    for group in groups:
        lines.append(((cut(f"  {group.heading}", width), "bold"),))
        for row in group.shown:
            here = culprit is not None and (group.members[0].pid, row.tid) == (culprit.pid, culprit.tid)
            lines.append(((_table_row(_cells(row), columns, ">" if here else " ", width), "bold" if here else ""),))
        if note := folded_note(group):
            lines.append(((cut(f"    {note}", width), "dim"),))
    if quiet:
        pids = [row.pid for group in quiet for row in group.members]
        lines.append(
            ((cut(f"  + {words.plural(len(pids), 'helper process', 'helper processes')} not shown", width), "dim"),)
        )
    return lines


def _cells(row: ThreadRow) -> tuple[str, ...]:
    numbers = (words.ratio(value).removesuffix("%") for value in (row.cpu_ratio, row.gil_ratio, row.runqueue_ratio))
    name = words.thread_name(row.name) or f"tid {row.tid}"
    return (words.clean(row.role), name, words.thread_state(row), words.clean(row.wait_point) or words.UNREAD, *numbers)


def _columns(rows: list[ThreadRow], width: int) -> list[int]:
    """Width of each column, 0 for one that nothing fills."""
    table = [_cells(row) for row in rows]
    natural = [max([len(_HEADERS[i]), *(width_of(cells[i]) for cells in table)]) for i in range(len(_HEADERS))]
    for index in range(4, len(_HEADERS)):
        if width < 60 or all(cells[index] == words.UNREAD for cells in table):
            natural[index] = 0
    excess = 4 + sum(column + 1 for column in natural if column) - 1 - width
    points = max([len(_HEADERS[3]), *(width_of(_without_engine(cells[3])) for cells in table)])
    for index, floor in _SHRINK_ORDER:
        given = min(max(0, excess), max(0, natural[index] - (floor or points)))
        natural[index] -= given
        excess -= given
    return natural


def _table_row(cells: tuple[str, ...], columns: list[int], mark: str, width: int) -> str:
    parts = []
    for index, (cell, column) in enumerate(zip(cells, columns, strict=True)):
        if not column:
            continue
        short = _point(cell, column) if index == 3 else cut(cell, column)
        parts.append(pad(short, column) if index < 4 else short.rjust(column))
    return cut(f"  {mark} " + " ".join(parts), width)


def _without_engine(point: str) -> str:
    """A wait point without its first part: "vllm.core.input-queue" -> "…core.input-queue"."""
    first, dot, rest = point.partition(".")
    return f"…{rest}" if dot and rest else first


def _point(point: str, width: int) -> str:
    return point if width_of(point) <= width else cut(_without_engine(point), width, keep="end")


def stack_lines(diagnosis: Diagnosis, width: int, *, verbose: bool = False) -> list[Line]:
    """The culprit's stack (the members of a cycle, or every thread when `verbose`), innermost frame first."""
    lines: list[Line] = []
    for pid, row in _stacks(diagnosis, verbose):
        process = find_process(diagnosis, pid)
        owner = words.process(process.role, pid, process.rank) if process else f"pid {pid}"
        lines.append(((cut(f"  {owner}, {_thread_name(row)}", width), "bold"),))
        lines.extend(paragraph(f"at {_place(row)}", width, first="  ", rest="  "))
        limit = len(row.frames) if verbose else FRAMES_SHOWN
        lines.extend(((f"    {frame(text, width - 4)}", ""),) for text in row.frames[:limit])
        if len(row.frames) > limit:
            lines.append(((f"    (+ {words.plural(len(row.frames) - limit, 'outer frame')}; -v shows them)", "dim"),))
    return lines


def _stacks(diagnosis: Diagnosis, verbose: bool) -> list[tuple[int, ThreadRow]]:
    if verbose:
        return [(process.pid, row) for process in diagnosis.processes for row in process.threads if row.frames]
    view, verdict = view_chain(diagnosis), diagnosis.verdict
    if words.is_healthy(verdict) and verdict.culprit is None:
        return []
    steps = view.steps[view.back_to :] if view.back_to is not None else view.steps[-1:]
    wanted: list[tuple[int, ThreadRow | None]] = [(step.link.pid, step.thread) for step in steps]
    culprit = verdict.culprit
    if culprit is not None and culprit.pid is not None and view.back_to is None:
        wanted = [(culprit.pid, find_thread(diagnosis, culprit.pid, culprit.tid))]
    return [(pid, row) for pid, row in wanted[:4] if row is not None and row.frames]


def _thread_name(row: ThreadRow) -> str:
    name = words.clean(row.name)
    return f"{words.clean(row.role)} (tid {row.tid}" + (f', "{name}")' if name else ")")


def _place(row: ThreadRow) -> str:
    meaning = words.clean(row.meaning).rstrip(".") or words.wait_class(row.wait_class)
    point = words.clean(row.wait_point)
    return f"{point}: {meaning}" if point and point != "unknown" else f"a place that no rule knows: {meaning}"


def frame(text: str, width: int) -> str:
    """One frame in `width` columns; of a long path the end is kept, `function (…/core.py:12)`."""
    text = words.clean(text)
    parts = _FRAME.match(text)
    if width_of(text) <= width or not parts or width_of(parts[1]) > width - 12:
        return cut(text, width)
    return f"{parts[1]} ({cut(parts[2], width - width_of(parts[1]) - 3, keep='end')})"
