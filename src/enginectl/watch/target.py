"""Which engine is watched: found at the start, and found again after a restart."""

from __future__ import annotations

import re

from enginectl.errors import NoSuchProcess, UsageError
from enginectl.observe import target
from enginectl.observe.target import Recognise, Seen


class Finder:
    """Finds the top process of the engine. `why` says why none was found the last time.

    With a pid, that engine first, and later the one with the same command line (or else the only one of its kind).
    With a name, the only one that matches. With neither, the only one on the host.
    """

    def __init__(self, recognise: Recognise, pid: int | None, name: str) -> None:
        self._recognise = recognise
        self._pid = pid
        try:
            self._name = re.compile(name) if name else None
        except re.error as error:
            raise UsageError(f"--name {name}: {error}") from error
        self._before: Seen | None = None
        self.why = ""

    def find(self) -> int | None:
        """The pid of the engine's top process, None while there is none or more than one."""
        table = target.list_processes(self._recognise)
        roots = [table[r] for r in target.engines_on_host(table) if table[r].state not in "ZX"]
        if self._before is None and self._pid is not None:
            if self._pid not in table:
                raise NoSuchProcess(f"no process has pid {self._pid}")
            return self._keep(table[target.root_of(table, self._pid)])
        found = [r for r in roots if self._matches(table, r)]
        if self._before is not None and len(found) > 1 and self._name is None:
            found = [r for r in found if r.command == self._before.command] or found
        self.why = "no engine is running" if not found else f"{len(found)} engines match"
        return self._keep(found[0]) if len(found) == 1 else None

    def _keep(self, seen: Seen) -> int:
        self._before, self.why = seen, ""
        return seen.pid

    def _matches(self, table: dict[int, Seen], root: Seen) -> bool:
        if self._name is not None:
            pattern = self._name
            return any(pattern.search(f"{s.title} {' '.join(s.command)}") for s in target.tree_of(table, root.pid))
        return self._before is None or root.engine == self._before.engine

    def members(self, root: int) -> frozenset[int]:
        """The pids of the engine now."""
        table = target.list_processes(self._recognise)
        return frozenset(s.pid for s in target.tree_of(table, root)) if root in table else frozenset()
