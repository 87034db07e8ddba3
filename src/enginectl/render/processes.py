"""The table of engine processes that `enginectl ps` prints."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginectl.render.words import clean


class ProcessLine(msgspec.Struct, frozen=True, kw_only=True):
    """One process of an engine tree; `depth` 0 is the top parent."""

    pid: int
    parent_pid: int
    depth: int
    title: str
    engine: str
    engine_version: str
    role: str
    ranks: dict[str, int]
    uptime_seconds: float
    state: str
    gpu_memory_bytes: int | None = None


_STATES = {"R": "running", "S": "sleeping", "D": "disk wait", "T": "STOPPED", "t": "TRACED", "Z": "ZOMBIE", "I": "idle"}


def _uptime(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24}d{hours % 24:02d}h"
    return f"{hours}h{minute:02d}m" if hours else f"{minute}m{second:02d}s"


def _gpu_memory(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**30:.1f} GiB"


def render_processes(lines: Sequence[ProcessLine], width: int = 80) -> str:
    """The table, children indented below their parents; a sentence when there is none."""
    if not lines:
        return "No engine is running on this host."
    with_gpu = any(line.gpu_memory_bytes is not None for line in lines)
    rows = [("PID", "ENGINE", "ROLE", "RANK", "UP", "STATE", *(("GPU MEM",) if with_gpu else ()), "TITLE")]
    for line in lines:
        ranks = " ".join(f"{k}{v}" for k, v in line.ranks.items())
        engine = clean(f"{line.engine} {line.engine_version}".strip())
        pid = "  " * line.depth + str(line.pid)
        state = _STATES.get(line.state, line.state)
        gpu = (_gpu_memory(line.gpu_memory_bytes),) if with_gpu else ()
        up = _uptime(line.uptime_seconds)
        rows.append((pid, engine, line.role or "?", ranks or "-", up, state, *gpu, clean(line.title)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    result = []
    for row in rows:
        head = "  ".join(cell.ljust(size) for cell, size in zip(row[:-1], widths, strict=True))
        text = f"{head}  {row[-1]}"
        result.append(text if len(text) <= width else text[: width - 1] + "…")
    return "\n".join(result)


def render_processes_json(lines: Sequence[ProcessLine]) -> str:
    """The same as JSON, one object per process."""
    return msgspec.json.format(msgspec.json.encode(list(lines))).decode()
