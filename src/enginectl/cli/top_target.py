"""Which engine `top` watches: the choice between several, and the same engine again after a restart."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from enginectl.cli import pipeline
from enginectl.knowledge.loader import Knowledge
from enginectl.model.observed import ProcessFact
from enginectl.observe import target
from enginectl.top.moment import Choice


def choices(knowledge: Knowledge, name: str = "") -> tuple[Choice, ...]:
    """The engines on this host, those whose title or command line matches `name` when it is given."""
    table = target.list_processes(pipeline.Recogniser(knowledge))
    found: list[Choice] = []
    for root in target.engines_on_host(table):
        tree, top = target.tree_of(table, root), table[root]
        if name and not any(re.search(name, _words(seen)) for seen in tree):
            continue
        found.append(
            Choice(
                pid=root,
                engine=top.engine or next((s.engine for s in tree if s.engine), ""),
                title=" ".join(top.command) or top.title,
                processes=len(tree),
                uptime_seconds=max(0.0, time.time() - top.started_at),
            )
        )
    return tuple(found)


def _words(seen: target.Seen) -> str:
    return f"{seen.title} {' '.join(seen.command)}"


class Sought:
    """What is known of an engine, so that it can be found again under another pid."""

    def __init__(self, knowledge: Knowledge, name: str = "") -> None:
        self._knowledge = knowledge
        self._recognise = pipeline.Recogniser(knowledge)
        self._name = name
        self._engine: str | None = None
        self._role: str | None = None
        self._command = ""
        self._others: frozenset[int] = frozenset()

    @property
    def told(self) -> str:
        """By what it is looked for."""
        return f"looked for by --name {self._name}" if self._name else f"looked for by name: {self._engine or 'engine'}"

    def note(self, pid: int) -> None:
        """Remember the engine that this process belongs to. Does nothing when it has ended already."""
        table = target.list_processes(self._recognise)
        if pid not in table:
            return
        tree = target.tree_of(table, pid)
        self._engine = next((s.engine for s in tree if s.engine), None)
        self._role = table[pid].role
        self._command = _words(tree[0])
        self._others = frozenset(target.engines_on_host(table)) - {s.pid for s in tree}

    def again(self) -> int | None:
        """The pid to watch now: of the one engine that fits best, in the same role; None while there is none.

        Engines that ran beside the lost one are other engines. Between two new ones it does not guess.
        """
        table = target.list_processes(self._recognise)
        roots = [
            root
            for root in target.engines_on_host(table)
            if root not in self._others
            and any(s.engine == self._engine for s in target.tree_of(table, root))
            and (not self._name or any(re.search(self._name, _words(s)) for s in target.tree_of(table, root)))
        ]
        same = [root for root in roots if _words(table[root]) == self._command]
        fitting = same or roots
        if len(fitting) != 1:
            return None
        members = target.tree_of(table, fitting[0])
        return next((s.pid for s in members if s.role == self._role and s.state not in "ZX"), None)

    def new_members(self, pid: int, known: Iterable[ProcessFact]) -> bool:
        """Whether the tree has got an engine process that is not watched yet."""
        table = target.list_processes(self._recognise)
        if pid not in table:
            return False
        watched = {fact.pid for fact in known}
        tree = target.tree_of(table, pid)
        return any(s.pid not in watched and s.engine and s.role != "helper" and s.state not in "ZX" for s in tree)
