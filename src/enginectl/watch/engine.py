"""One engine under continuous observation, across its restarts and those of its parts."""

from __future__ import annotations

import time
from collections.abc import Callable

from enginectl.errors import NoSuchProcess, NotAnEngine
from enginectl.model.observed import Snapshot
from enginectl.observe.record import Observation
from enginectl.watch.ring import Ring
from enginectl.watch.target import Finder

REFRESH_SECONDS = 30.0
"""How often new or replaced processes of the engine are looked for."""


class Watched:
    """The engine and the ring of what was seen of it. `pid` is None while there is none."""

    def __init__(self, finder: Finder, observe: Callable[[int], Observation], keep_seconds: float) -> None:
        self._finder = finder
        self._observe = observe
        self._keep_seconds = keep_seconds
        self._observation: Observation | None = None
        self._looked = 0.0
        self._members: frozenset[int] = frozenset()
        self.ring = Ring(keep_seconds)
        self.pid: int | None = None

    @property
    def why(self) -> str:
        """Why there is no engine."""
        return self._finder.why

    def find(self) -> bool:
        """Look for the engine, and begin a new ring with it.

        Errors: NoSuchProcess for a pid that was given and is not there, NotAnEngine for one that is none.
        """
        pid = self._finder.find()
        if pid is None:
            return False
        try:
            self._observation = self._observe(pid)
        except NoSuchProcess:
            return False
        self.pid, self.ring = pid, Ring(self._keep_seconds)
        self._begin()
        return True

    def _begin(self) -> None:
        assert self._observation is not None
        head = self._observation.recording()
        self._members = frozenset(fact.pid for fact in head.processes)
        self._looked = time.monotonic()
        self.ring.begin(head)

    def take(self) -> Snapshot | None:
        """One snapshot into the ring; None when the engine has gone, and then it is let go of."""
        if self._observation is None or self.pid is None:
            return None
        try:
            snapshot = self._observation.take()
        except NoSuchProcess:
            self.let_go()
            return None
        kept = self.ring.add(snapshot, self._observation.began + snapshot.offset_seconds)
        states = {sample.pid: sample.os_state for sample in snapshot.processes}
        if states.get(self.pid) in ("X", "Z"):
            self.let_go()
            return None
        lost = any(state == "X" for state in states.values())
        if time.monotonic() - self._looked > (REFRESH_SECONDS / 10 if lost else REFRESH_SECONDS):
            self._refresh()
        return kept

    def _refresh(self) -> None:
        """Observe anew when the engine's processes are others than before."""
        self._looked = time.monotonic()
        assert self.pid is not None and self._observation is not None
        now = self._finder.members(self.pid)
        if not now or now == self._members:
            return
        try:
            fresh = self._observe(self.pid)
        except (NoSuchProcess, NotAnEngine):
            return
        self._observation.close()
        self._observation = fresh
        self._begin()

    def let_go(self) -> None:
        """Stop observing; the ring stays until the next engine is found."""
        if self._observation is not None:
            self._observation.close()
        self._observation = None
        self.pid = None
