"""File locks that a process waits for, and who holds them.

The kernel lists waiters of blocking calls. A lock that is polled without blocking leaves no waiter: it shows only
while the poller keeps the file open, as an open lock file whose lock somebody else holds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import msgspec

from enginectl.model.observed import Gap
from enginectl.observe.fds import all_pids, fd_links, name_of

_LINE = re.compile(
    r"^(\d+): (-> )?(POSIX|FLOCK|OFDLCK|LEASE)\s+\S+\s+(READ|WRITE|RW)\s+(-?\d+) ([0-9a-f]+:[0-9a-f]+):(\d+)",
    re.MULTILINE,
)
_LOCK_FILE = re.compile(r"\.(lock|lck)$|/(lock|\.lock)[^/]*$")


class FileLock(msgspec.Struct, frozen=True):
    """One line of `/proc/locks`. A waiter has the `number` of the lock it waits for; `pid` 0 or less is foreign."""

    number: int
    waits: bool
    kind: str
    access: str
    pid: int
    device: str
    inode: int


def parse_locks(text: str) -> tuple[FileLock, ...]:
    """Lines of `/proc/locks`; those of an unknown form are left out."""
    return tuple(FileLock(int(m[1]), bool(m[2]), m[3], m[4], int(m[5]), m[6], int(m[7])) for m in _LINE.finditer(text))


def read_locks(pids: Sequence[int]) -> tuple[dict[int, tuple[str, ...]], tuple[Gap, ...]]:
    """File locks that `pids` wait for.

    Shape: `{pid: ("/cache/x.lock, held by pid 77 (python3)",)}`, only pids that wait. Errors: none.
    Source: `/proc/locks`, and `/proc/PID/fd` for the path behind an inode.
    """
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            locks = parse_locks(file.read(4 * 1024 * 1024))
    except OSError as error:
        reason = f"the kernel's list of file locks cannot be read ({os.strerror(error.errno or 0)})"
        return {}, (Gap(source="locks", reason=reason, remedy="run enginectl on the host"),)
    held: dict[tuple[str, int], list[FileLock]] = {}
    for lock in locks:
        if not lock.waits:
            held.setdefault((lock.device, lock.inode), []).append(lock)
    if not held:
        return {}, ()
    found: dict[int, list[str]] = {}
    wanted = set(pids)
    for lock in locks:
        if lock.waits and lock.pid in wanted:
            owners = [each for each in held.get((lock.device, lock.inode), ()) if each.number == lock.number]
            found.setdefault(lock.pid, []).append(f"{_path_of(lock)}, {_owners(owners)}")
    for pid in pids:
        if pid not in found and (polled := _polled(pid, held)):
            found[pid] = polled
    return {pid: tuple(dict.fromkeys(lines)) for pid, lines in found.items()}, ()


def _polled(pid: int, held: dict[tuple[str, int], list[FileLock]]) -> list[str]:
    """Lock files that `pid` has open and has not locked, while somebody else holds them exclusively."""
    lines: list[str] = []
    inodes = {inode: locks for (_, inode), locks in held.items()}
    for fd, link in (fd_links(pid) or {}).items():
        if not _LOCK_FILE.search(link):
            continue
        try:
            told = os.stat(f"/proc/{pid}/fd/{fd}")
            with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii", errors="replace") as file:
                mine = "lock:" in file.read()
        except OSError:
            continue
        owners = [each for each in inodes.get(told.st_ino, ()) if each.access == "WRITE" and each.pid != pid]
        if owners and not mine:
            lines.append(f"{link}, {_owners(owners)}, polled")
    return lines


def _owners(owners: Sequence[FileLock]) -> str:
    """Who holds it, by pid and name."""
    if not owners or all(each.pid <= 0 for each in owners):
        return "held by a process that is not visible here"
    return "held by " + ", ".join(f"pid {pid} ({name_of(pid)})" for pid in dict.fromkeys(o.pid for o in owners))


def _path_of(lock: FileLock) -> str:
    """The path behind the inode, from the waiter's descriptors or, failing that, anybody's."""
    for pid in (lock.pid, *all_pids()):
        for fd, link in (fd_links(pid) or {}).items():
            if not link.startswith("/"):
                continue
            try:
                if os.stat(f"/proc/{pid}/fd/{fd}").st_ino == lock.inode:
                    return link
            except OSError:
                continue
    return f"inode {lock.device}:{lock.inode}"
