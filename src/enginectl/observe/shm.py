"""Shared memory: room left in the target's `/dev/shm` and in the other memory file systems it has files on."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from enginectl.model.observed import Gap
from enginectl.observe.fds import fd_links


class ShmSample(msgspec.Struct, frozen=True, kw_only=True):
    """Size and free bytes of one memory file system. `open_files` counts the target's descriptors on it."""

    mount: str
    size_bytes: int
    free_bytes: int
    open_files: int | None = None


class _Mount(msgspec.Struct, frozen=True):
    device: str
    point: str


def read_shm(pid: int, *, others: bool = True) -> tuple[ShmSample | None, tuple[ShmSample, ...], tuple[Gap, ...]]:
    """`/dev/shm` as the target sees it, and the other tmpfs mounts on which it has open files.

    Shape: (`/dev/shm` or None, others, gaps). A size of 0 means without limit. `others=False` leaves the other
    mounts and `open_files` out, which saves walking the descriptors. Errors: none.
    Source: `/proc/PID/mountinfo`, `/proc/PID/fd`, statvfs through `/proc/PID/root`, or on our own mount when it
    is the same file system. The target's memory map is not read: a hung process can hold its lock.
    """
    mounts = _tmpfs_mounts(pid)
    if mounts is None:
        return None, (), (_gap(pid, "its mounts cannot be read"),)
    links = fd_links(pid) if others else None
    ours = {mount.device: mount.point for mount in _tmpfs_mounts(os.getpid()) or ()}
    counts: dict[str, int] = {}
    for link in (links or {}).values():
        if link.startswith("/") and (mount := _mount_of(link, mounts)) is not None:
            counts[mount.point] = counts.get(mount.point, 0) + 1
    main: ShmSample | None = None
    more: list[ShmSample] = []
    gaps: list[Gap] = []
    for mount in mounts:
        if mount.point != "/dev/shm" and mount.point not in counts:
            continue
        sample = _measure(pid, mount, ours, counts.get(mount.point, 0) if links is not None else None)
        if sample is None:
            gaps.append(_gap(pid, f"its {mount.point} cannot be reached"))
        elif mount.point == "/dev/shm":
            main = sample
        else:
            more.append(sample)
    if main is None and not gaps:
        gaps.append(Gap(source="shm", reason=f"pid {pid} has no /dev/shm of its own", remedy=""))
    return main, tuple(more), tuple(gaps)


def shared_segments(pids: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Shared-memory files that two or more of `pids` hold open: rings between an engine and its workers, tensors.

    Shape: `{pid: ("psm_1a2b",)}`, only pids that share, names sorted. Two files of one name in two containers are two.
    Errors: none; what may not be read is left out. Source: `/proc/PID/fd`, the device and inode behind each.
    """
    holders: dict[tuple[int, int], tuple[str, set[int]]] = {}
    for pid in pids:
        for fd, link in (fd_links(pid) or {}).items():
            if not link.startswith("/dev/shm/"):
                continue
            try:
                told = os.stat(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            name = link.removeprefix("/dev/shm/").removesuffix(" (deleted)")
            holders.setdefault((told.st_dev, told.st_ino), (name, set()))[1].add(pid)
    shared = [(name, owners) for name, owners in holders.values() if len(owners) > 1]
    found = {pid: tuple(sorted({name for name, owners in shared if pid in owners})) for pid in pids}
    return {pid: names for pid, names in found.items() if names}


def _measure(pid: int, mount: _Mount, ours: dict[str, str], open_files: int | None) -> ShmSample | None:
    for place in (f"/proc/{pid}/root{mount.point}", ours.get(mount.device)):
        if place is None:
            continue
        try:
            told = os.statvfs(place)
        except OSError:
            continue
        return ShmSample(
            mount=mount.point,
            size_bytes=told.f_blocks * told.f_frsize,
            free_bytes=told.f_bavail * told.f_frsize,
            open_files=open_files,
        )
    return None


def _mount_of(path: str, mounts: tuple[_Mount, ...]) -> _Mount | None:
    """The deepest tmpfs mount that holds `path`."""
    inside = [mount for mount in mounts if path.startswith(mount.point.rstrip("/") + "/")]
    return max(inside, key=lambda mount: len(mount.point), default=None)


def _tmpfs_mounts(pid: int) -> tuple[_Mount, ...] | None:
    """The tmpfs mounts that `pid` sees; of two on one point, the upper."""
    found: dict[str, _Mount] = {}
    try:
        with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                left, _, right = line.partition(" - ")
                field = left.split(" ")
                if len(field) < 5:
                    continue
                point = field[4].replace("\\040", " ")
                if right.startswith("tmpfs "):
                    found[point] = _Mount(field[2], point)
                else:
                    found.pop(point, None)
    except OSError:
        return None
    return tuple(found.values())


def _gap(pid: int, reason: str) -> Gap:
    return Gap(source="shm", reason=f"pid {pid}: {reason}", remedy="run enginectl as the engine's user, or as root")
