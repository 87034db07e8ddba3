"""Which threads the table shows, in which order, and what is marked. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from enginectl.model.diagnosed import Diagnosis, ProcessRow, ThreadRow
from enginectl.render import words
from enginectl.top.moment import Node
from enginectl.top.screenful import Screenful

SORTS = ("blame", "cpu", "role", "process")
_ROLE_ORDER = (
    "engine-loop", "worker-loop", "frontend-loop", "ipc", "ipc-in", "ipc-out", "output", "async-output-copy",
    "tokenizer-pool", "grammar-pool", "kv-transfer", "monitor", "helper",
)  # fmt: skip
CULPRIT, CHAIN, WORK = "!", "|", "*"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. `mark` is ! for the culprit, | for the threads that wait for it, * where time goes."""

    process: ProcessRow
    thread: ThreadRow
    mark: str
    cpu_ratio: float | None
    runqueue_ratio: float | None

    @property
    def node(self) -> Node:
        """The identity of the thread."""
        return (self.process.pid, self.thread.tid)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The lines shown and how many threads were left out as helpers."""

    rows: tuple[Row, ...]
    hidden: int


def table(screen: Screenful, *, sort: str = "blame", helpers: bool = False, pid: int | None = None) -> Table:
    """The threads of one process (all with `pid` None). A helper that is marked is shown in any case."""
    diagnosis, moment = screen.diagnosis, screen.moment
    if diagnosis is None:
        return Table(rows=(), hidden=0)
    rows = [
        Row(
            process=process,
            thread=thread,
            mark=mark_of(diagnosis, process.pid, thread.tid),
            cpu_ratio=moment.cpu.get((process.pid, thread.tid), thread.cpu_ratio),
            runqueue_ratio=moment.runqueue.get((process.pid, thread.tid), thread.runqueue_ratio),
        )
        for process in diagnosis.processes
        if pid in (None, process.pid)
        for thread in process.threads
    ]
    shown = [row for row in rows if helpers or row.mark or not _is_helper(row)]
    shown.sort(key=_KEYS[sort])
    return Table(rows=tuple(shown), hidden=len(rows) - len(shown))


def mark_of(diagnosis: Diagnosis, pid: int, tid: int | None) -> str:
    """The mark of a thread, or of a process with `tid` None; empty for none.

    Where a whole process is to blame, its threads in the chain are, or its main one.
    """
    culprit = diagnosis.verdict.culprit
    if culprit is not None and culprit.pid == pid and (tid is None or tid in _blamed(diagnosis, pid, culprit.tid)):
        if not words.is_healthy(diagnosis.verdict):
            return CULPRIT
        return WORK if diagnosis.verdict.state == "busy" else ""
    if tid is None or words.is_healthy(diagnosis.verdict):
        return ""
    return CHAIN if any((link.pid, link.tid) == (pid, tid) for link in diagnosis.chain) else ""


def _blamed(diagnosis: Diagnosis, pid: int, tid: int | None) -> tuple[int | None, ...]:
    """The threads behind a culprit: itself; of a whole process, those in the chain, else the first that works."""
    if tid is not None:
        return (tid,)
    linked = tuple(link.tid for link in diagnosis.chain if link.pid == pid)
    rows = next((process.threads for process in diagnosis.processes if process.pid == pid), ())
    return linked or tuple(t.tid for t in rows if t.role not in words.HELPER_ROLES)[:1]


def _is_helper(row: Row) -> bool:
    return row.thread.role in words.HELPER_ROLES or row.process.role == "helper"


def _role_place(row: Row) -> int:
    return _ROLE_ORDER.index(row.thread.role) if row.thread.role in _ROLE_ORDER else len(_ROLE_ORDER)


def _blame(row: Row) -> tuple[object, ...]:
    place = {CULPRIT: 0, WORK: 0, CHAIN: 1}.get(row.mark, 2)
    return (place, _is_helper(row), _role_place(row), row.process.pid, row.thread.tid)


_KEYS: dict[str, Callable[[Row], tuple[object, ...]]] = {
    "blame": _blame,
    "cpu": lambda row: (-(row.cpu_ratio or 0.0), row.process.pid, row.thread.tid),
    "role": lambda row: (_role_place(row), row.process.pid, row.thread.tid),
    "process": lambda row: (row.process.pid, row.thread.tid),
}
