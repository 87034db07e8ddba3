"""Which threads a report shows, how many it folds away, and which processes stand alike."""

from __future__ import annotations

import msgspec

from enginectl.model.diagnosed import Diagnosis, ProcessRow, ThreadRow
from enginectl.render import words

HOT_RATIO = 0.5
_ALIKE_FROM = 3


class ProcessGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Processes that stand alike (one, as a rule), the rows to show of the first, and the count folded away.

    `quiet` are helpers of which nothing matters to the diagnosis.
    """

    members: tuple[ProcessRow, ...]
    shown: tuple[ThreadRow, ...]
    folded: tuple[ThreadRow, ...]
    quiet: bool = False

    @property
    def heading(self) -> str:
        """Who this is: "engine-core (pid 4321), stopped" or "worker ranks 0-2, 4-7 (7 processes)"."""
        first = self.members[0]
        state = words.os_state(first.os_state)
        if len(self.members) == 1:
            title = words.clean(first.title)
            named = words.process(first.role, first.pid, first.rank) + (f", {state}" if state else "")
            return f"{named}: {title}" if title else named
        ranks = [process.rank for process in self.members if process.rank is not None]
        which = f" ranks {words.spans(ranks)}" if len(ranks) == len(self.members) else ""
        pids = words.spans([process.pid for process in self.members])
        tail = f", {state}" if state else ""
        return f"{words.clean(first.role)}{which} ({len(self.members)} processes alike, pids {pids}){tail}"


def group_processes(diagnosis: Diagnosis, *, verbose: bool = False) -> list[ProcessGroup]:
    """The processes in order, equal ones folded together unless `verbose` or one of them is the culprit's."""
    marked = _marked(diagnosis)
    culprit = diagnosis.verdict.culprit
    groups: dict[object, list[ProcessRow]] = {}
    for process in diagnosis.processes:
        alone = verbose or (culprit is not None and process.pid == culprit.pid)
        groups.setdefault(process.pid if alone else _signature(process), []).append(process)
    split: list[list[ProcessRow]] = []
    for members in groups.values():
        split.extend([members] if len(members) >= _ALIKE_FROM else [[member] for member in members])
    order = {id(process): index for index, process in enumerate(diagnosis.processes)}
    split.sort(key=lambda members: order[id(members[0])])
    return [_group(members, marked, verbose) for members in split]


def split_quiet(groups: list[ProcessGroup]) -> tuple[list[ProcessGroup], list[ProcessGroup]]:
    """The groups to show and the quiet ones; with nothing but quiet ones, all are shown."""
    loud = [group for group in groups if not group.quiet]
    return (loud, [group for group in groups if group.quiet]) if loud else (groups, [])


def folded_note(group: ProcessGroup) -> str:
    """One line for the threads that are not shown, empty when there are none."""
    if not group.folded:
        return ""
    roles = sorted({words.clean(thread.role) or "helper" for thread in group.folded})
    return f"+ {words.plural(len(group.folded), 'quiet thread')} not shown ({', '.join(roles)})"


def _group(members: list[ProcessRow], marked: set[tuple[int, int | None]], verbose: bool) -> ProcessGroup:
    threads = members[0].threads
    shown = [row for row in threads if verbose or _matters(row, members[0].pid, marked)]
    quiet = not shown and members[0].role == "helper" and not words.os_state(members[0].os_state)
    if not shown:  # of a helper process whose stacks were not read there is nothing to show
        shown = [row for row in threads[:4] if members[0].role != "helper" or row.frames]
    kept = {id(row) for row in shown}
    return ProcessGroup(
        members=tuple(members),
        shown=tuple(shown),
        folded=tuple(row for row in threads if id(row) not in kept),
        quiet=quiet,
    )


def _matters(row: ThreadRow, pid: int, marked: set[tuple[int, int | None]]) -> bool:
    if (pid, row.tid) in marked or row.role not in words.HELPER_ROLES:
        return True
    return max(row.cpu_ratio or 0.0, row.gil_ratio or 0.0) >= HOT_RATIO


def _marked(diagnosis: Diagnosis) -> set[tuple[int, int | None]]:
    marked = {(link.pid, link.tid) for link in diagnosis.chain}
    culprit = diagnosis.verdict.culprit
    return marked | {(culprit.pid, culprit.tid)} if culprit and culprit.pid is not None else marked


def _signature(process: ProcessRow) -> object:
    rows = tuple(
        (row.role, row.wait_point, words.thread_state(row))
        for row in process.threads
        if row.role not in words.HELPER_ROLES
    )
    return process.role, process.os_state, rows
