"""The machine around the engine: cores, CPU limits and throttling, pressure, memory, OOM kills.

Limits are those of the control groups of the process (v1, v2 or both), walked from its own group up to the root:
the tightest counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from enginectl.model.observed import Gap, HostSample

# A limit above this is how version 1 writes "no limit".
_NO_MEMORY_LIMIT_BYTES = 1 << 60


class ControlGroup(msgspec.Struct, frozen=True):
    """Where the groups of a process lie: directories from its own group up, for one controller."""

    version: int
    levels: tuple[Path, ...]


def read_host(pid: int) -> tuple[HostSample, tuple[Gap, ...]]:
    """The host as `pid` feels it.

    Shape: one `HostSample`; what the kernel does not tell is None. Units: cores, seconds (total since the group
    began), percent of time (PSI avg10, "some"), bytes. Errors: none; a Gap when no control group can be read.
    Source: `/proc`, `/sys/fs/cgroup`.
    """
    groups = _groups(pid)
    gaps: list[Gap] = []
    if groups is None:
        reason = f"the control groups of pid {pid} cannot be read, so CPU and memory limits are unknown"
        gaps.append(Gap(source="host", reason=reason, remedy="mount cgroup at /sys/fs/cgroup"))
        groups = {}
    pressure = {name: _pressure(name, groups.get("")) for name in ("cpu", "memory", "io")}
    if all(value is None for value in pressure.values()):
        reason = "the kernel keeps no pressure stall information"
        gaps.append(Gap(source="host", reason=reason, remedy="boot the host with psi=1"))
    return (
        HostSample(
            cpu_count=os.cpu_count(),
            cpu_limit_cores=_cpu_limit(groups.get("cpu") or groups.get("")),
            affinity_cores=_affinity(pid),
            load_runnable=_runnable(),
            throttled_seconds=_throttled(groups.get("cpu") or groups.get("")),
            cpu_pressure_percent=pressure["cpu"],
            memory_pressure_percent=pressure["memory"],
            io_pressure_percent=pressure["io"],
            memory_free_bytes=_memory_free(groups.get("memory") or groups.get("")),
            oom_kills=_oom_kills(groups.get("memory") or groups.get("")),
        ),
        tuple(gaps),
    )


def _groups(pid: int) -> dict[str, ControlGroup] | None:
    """Groups of `pid` by controller, `""` for the unified hierarchy; None when nothing can be read."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text("utf-8", "replace").splitlines()
        mounts = list(_cgroup_mounts())
    except OSError:
        return None
    groups: dict[str, ControlGroup] = {}
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = set(controllers.split(",")) if controllers else set()
        for point, root, options in mounts:
            unified = options is None
            if (number == "0" and not names) if unified else (names and options is not None and names <= options):
                group = ControlGroup(2 if unified else 1, tuple(_levels(point, root, path)))
                for name in names or {""}:
                    groups.setdefault(name, group)
                break
    return groups or None


def _cgroup_mounts() -> Iterator[tuple[Path, str, set[str] | None]]:
    """(mount point, root of the mount, controllers) of each cgroup mount; controllers None for version 2."""
    for line in Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines():
        left, _, right = line.partition(" - ")
        field, kind = left.split(" "), right.split(" ")
        if kind[0] == "cgroup2":
            yield Path(field[4]), field[3], None
        elif kind[0] == "cgroup":
            yield Path(field[4]), field[3], set(kind[2].split(","))


def _levels(point: Path, root: str, path: str) -> Iterator[Path]:
    """Directories from the group `path` up to the mount point, leaving out what this mount does not show."""
    below = path
    if root != "/":
        inside = path == root or path.startswith(root.rstrip("/") + "/")
        below = path[len(root) :] if inside else "/"
    parts = [part for part in below.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        level = point.joinpath(*parts[:depth])
        if level.is_dir():
            yield level


def _cpu_limit(group: ControlGroup | None) -> float | None:
    """The smallest quota in cores; None when there is no limit."""
    limits: list[float] = []
    for level in group.levels if group else ():
        if group and group.version == 2:
            quota, period = [*(_read(level / "cpu.max") or "max").split(), "100000"][:2]
        else:
            quota = (_read(level / "cpu.cfs_quota_us") or "-1").strip()
            period = (_read(level / "cpu.cfs_period_us") or "100000").strip()
        if quota.isdigit() and period.isdigit() and int(period):
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def _throttled(group: ControlGroup | None) -> float | None:
    """Seconds that the group stood still because its quota was used up: the largest of its levels."""
    values: list[float] = []
    for level in group.levels if group else ():
        for key, value in _pairs(level / "cpu.stat"):
            if key == "throttled_usec":
                values.append(value / 1e6)
            elif key == "throttled_time":
                values.append(value / 1e9)
    return max(values, default=None)


def _pressure(name: str, unified: ControlGroup | None) -> float | None:
    """PSI "some" avg10 in percent: of the process's own group where there is one, else of the host."""
    places = [f"/proc/pressure/{name}"]
    if unified and len(unified.levels) > 1:
        places.insert(0, str(unified.levels[0] / f"{name}.pressure"))
    for place in places:
        for line in (_read(Path(place)) or "").splitlines():
            if line.startswith("some "):
                try:
                    return float(line.split("avg10=")[1].split()[0])
                except (IndexError, ValueError):
                    break
    return None


def _memory_free(group: ControlGroup | None) -> int | None:
    """Bytes that can still be had: MemAvailable, or less where a group's limit leaves less (file cache is free)."""
    values: list[int] = []
    for line in (_read(Path("/proc/meminfo")) or "").splitlines():
        if line.startswith("MemAvailable:"):
            values.append(int(line.split()[1]) * 1024)
    names = (
        ("memory.max", "memory.current")
        if group and group.version == 2
        else (
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
        )
    )
    for level in group.levels if group else ():
        limit, used = ((_read(level / name) or "").strip() for name in names)
        if limit.isdigit() and used.isdigit() and int(limit) < _NO_MEMORY_LIMIT_BYTES:
            cache = dict(_pairs(level / "memory.stat"))
            reclaimable = cache.get("total_inactive_file", cache.get("inactive_file", 0))
            values.append(max(0, int(limit) - int(used) + reclaimable))
    return min(values, default=None)


def _oom_kills(group: ControlGroup | None) -> int | None:
    """Processes killed for memory: in the own group and what lies below it, or on the host outside any group."""
    for level in group.levels[:1] if group and len(group.levels) > 1 else ():
        for name in ("memory.events", "memory.oom_control"):
            for key, value in _pairs(level / name):
                if key == "oom_kill":
                    return value
    for key, value in _pairs(Path("/proc/vmstat")):
        if key == "oom_kill":
            return value
    return None


def _affinity(pid: int) -> int | None:
    try:
        return len(os.sched_getaffinity(pid)) if pid > 0 else None
    except (OSError, OverflowError):
        return None


def _runnable() -> int | None:
    """Tasks that want a core now on the whole host, this reader included."""
    try:
        return int((_read(Path("/proc/loadavg")) or "").split()[3].partition("/")[0])
    except (IndexError, ValueError):
        return None


def _pairs(path: Path) -> Iterator[tuple[str, int]]:
    """`key value` lines of a kernel file."""
    for line in (_read(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if value.strip().isdigit():
            yield key, int(value)


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return None
