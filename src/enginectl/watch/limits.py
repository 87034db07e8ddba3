"""Bounds on what triggers may do: how often, and how much disk."""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

HOUR_SECONDS = 3600.0
_OWN = re.compile(r"enginectl-watch-\d{8}T\d{6}Z-[a-z0-9][a-z0-9-]{0,39}(?:-\d+)?\.ecrec")


class PerHour:
    """Grants at most `limit` times within any hour."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._granted: deque[float] = deque()

    def allows(self, now: float) -> bool:
        """Whether one more is within the limit."""
        while self._granted and now - self._granted[0] >= HOUR_SECONDS:
            self._granted.popleft()
        return len(self._granted) < self._limit

    def grant(self, now: float) -> None:
        """Count one."""
        self._granted.append(now)


class DiskBudget:
    """Keeps a folder's own recordings within a size: the oldest go first. Other files are never touched.

    Own is what has the name that `new_path` gives, is a plain file of this user, and has no second name: a hard link
    is somebody's way to keep it.
    """

    def __init__(self, folder: Path, limit_bytes: float) -> None:
        self.folder = folder
        self._limit_bytes = limit_bytes

    def new_path(self, trigger: str) -> Path:
        """A name that is free."""
        stem = f"enginectl-watch-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{trigger}"
        path, number = self.folder / f"{stem}.ecrec", 1
        while path.exists():
            number += 1
            path = self.folder / f"{stem}-{number}.ecrec"
        return path

    def _own(self) -> list[tuple[float, str, int, Path]]:
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if not _OWN.fullmatch(entry.name):
                    continue
                seen = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid() and seen.st_nlink == 1:
                    found.append((seen.st_mtime, entry.name, seen.st_size, Path(entry.path)))
        return sorted(found)

    def make_room(self, busy: frozenset[Path]) -> tuple[Path, ...]:
        """Delete the oldest own files until the rest fits; those being written (`busy`) count, and stay.

        Shape: the paths that were deleted. Errors: none; a folder that cannot be read holds nothing of ours.
        """
        deleted: list[Path] = []
        try:
            own = self._own()
            total = sum(size for _, _, size, _ in own)
            for _, _, size, path in own:
                if total <= self._limit_bytes:
                    break
                if path not in busy:
                    path.unlink()
                    deleted.append(path)
                    total -= size
        except OSError:
            return tuple(deleted)
        return tuple(deleted)

    def fits(self, size_bytes: int) -> bool:
        """Whether one file of this size may exist at all."""
        return size_bytes <= self._limit_bytes
