"""Recordings that triggers ask for: the ring at once, then what follows, within the disk budget."""

from __future__ import annotations

import msgspec

from enginectl.errors import UsageError
from enginectl.model.observed import Recording, Snapshot
from enginectl.record.write import Writer
from enginectl.watch.limits import DiskBudget
from enginectl.watch.ring import Ring


class _Open(msgspec.Struct, kw_only=True):
    """A recording in the making. `base` is the ring time of its first snapshot."""

    writer: Writer
    trigger: str
    base: float
    until: float
    last: float


class Recorder:
    """Writes recordings; `ended` collects a line for each that was finished or failed."""

    def __init__(self, budget: DiskBudget) -> None:
        self._budget = budget
        self._open: list[_Open] = []
        self.ended: list[str] = []

    def start(self, trigger: str, ring: Ring, head: Recording, after_seconds: float) -> str:
        """Save the ring under a new name and follow on for `after_seconds`; the file's name, "" when it failed."""
        whole = ring.recording()
        if not whole.snapshots or any(each.trigger == trigger for each in self._open):
            return ""
        path = self._budget.new_path(trigger)
        try:
            writer = Writer(path, msgspec.structs.replace(head, notes=(*head.notes, f"saved by trigger {trigger}")))
            for snapshot in whole.snapshots:
                writer.add(snapshot)
        except UsageError as error:
            self.ended.append(str(error))
            return ""
        end = ring.newest
        self._open.append(
            _Open(writer=writer, trigger=trigger, base=end - whole.wall_seconds, until=end + after_seconds, last=end)
        )
        if after_seconds <= 0:
            self._finish(self._open[-1])
        self._make_room()
        return path.name

    def add(self, snapshot: Snapshot) -> None:
        """A snapshot of the ring's time axis, for every recording that is still open."""
        for each in list(self._open):
            moved = msgspec.structs.replace(snapshot, offset_seconds=snapshot.offset_seconds - each.base)
            try:
                each.writer.add(moved)
            except UsageError as error:
                self._open.remove(each)
                self.ended.append(str(error))
                continue
            each.last = snapshot.offset_seconds
            if each.last >= each.until or not self._budget.fits(each.writer.size_bytes):
                self._finish(each)

    def _finish(self, each: _Open) -> None:
        self._open.remove(each)
        try:
            each.writer.finish(each.last - each.base)
        except UsageError as error:
            self.ended.append(str(error))
            return
        self.ended.append(f"{each.writer.path} is complete: {each.writer.count} snapshots")
        self._make_room()

    def _make_room(self) -> None:
        busy = frozenset(each.writer.path for each in self._open)
        self.ended += [f"{path} is deleted: over the disk budget" for path in self._budget.make_room(busy)]

    def close(self) -> None:
        """Finish all that is open."""
        for each in list(self._open):
            self._finish(each)
