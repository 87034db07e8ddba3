"""GPU errors (Xid) from the kernel log, where `/dev/kmsg` may be read."""

from __future__ import annotations

import os
import re
import time

import msgspec

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)[^)]*\): (\d+)")
_RECORD_LIMIT = 50_000
_READ_SECONDS = 0.2


class Xid(msgspec.Struct, frozen=True):
    """One GPU error. `place` is (PCI domain, bus, device); `boot_seconds` when, since boot."""

    place: tuple[int, int, int]
    number: int
    boot_seconds: float


def parse_record(record: str) -> Xid | None:
    """The Xid in one record of `/dev/kmsg` (`6,1234,5678901,-;NVRM: Xid (PCI:0000:65:00): 79, ...`)."""
    head, _, text = record.partition(";")
    found = _XID.search(text)
    if found is None:
        return None
    try:
        seconds = int(head.split(",")[2]) / 1e6
    except (IndexError, ValueError):
        seconds = 0.0
    return Xid((int(found[1], 16), int(found[2], 16), int(found[3], 16)), int(found[4]), seconds)


class KernelLog:
    """The kernel log, read on from where the last read ended. Closed or refused, it tells nothing."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self._xids: list[Xid] = []
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    @property
    def readable(self) -> bool:
        """Whether the log could be opened."""
        return self._fd >= 0

    def xids(self) -> tuple[Xid, ...]:
        """All GPU errors so far, oldest first. Bounded to 0.2 s and 50,000 records a call. Errors: none."""
        deadline = time.monotonic() + _READ_SECONDS
        for _ in range(_RECORD_LIMIT if self.readable else 0):
            try:
                raw = os.read(self._fd, 8192)
            except BrokenPipeError:
                continue
            except OSError:
                break
            if not raw or time.monotonic() > deadline:
                break
            if b"Xid" in raw:
                found = parse_record(raw.decode("utf-8", "replace"))
                if found is not None:
                    self._xids.append(found)
        return tuple(self._xids)

    def close(self) -> None:
        """Let go of the log."""
        if self.readable:
            os.close(self._fd)
            self._fd = -1
