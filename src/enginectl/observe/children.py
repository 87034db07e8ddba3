"""Compilers at work below the engine: a JIT build, a Triton or torch.compile pass."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from enginectl.model.observed import Gap
from enginectl.observe.fds import all_pids

_NAMES = """
    g++ gcc c++ cc cc1 cc1plus clang clang++ ld ld.lld lld as collect2 ninja cmake make nvcc cicc ptxas ptxas-blackwell
    cudafe++ fatbinary nvlink hipcc amdclang amdclang++ triton tilelang
"""
COMPILERS = frozenset(_NAMES.split())
# Python pools that compile kernels stay for good, so they count only while they run.
_COMPILE_POOLS = ("torch/_inductor/compile_worker", "torch._inductor.compile_worker", "triton.compiler")


class CompilingChildren(msgspec.Struct, frozen=True, kw_only=True):
    """Compilers below a process at one instant. `cpu_seconds` is their total since each began."""

    count: int
    cpu_seconds: float
    names: tuple[str, ...] = ()


class _Row(msgspec.Struct, frozen=True):
    parent: int
    name: str
    state: str
    cpu_seconds: float


def read_compilers(pids: Sequence[int]) -> tuple[dict[int, CompilingChildren], tuple[Gap, ...]]:
    """Compilers among the descendants of each of `pids`; a descendant belongs to the nearest of them.

    Shape: one entry for every pid given, count 0 when nothing compiles. Errors: none. Source: `/proc/*/stat`.
    """
    rows = _table()
    if not rows:
        return {}, (Gap(source="children", reason="/proc cannot be listed", remedy="mount /proc"),)
    wanted = set(pids)
    found: dict[int, list[tuple[int, _Row]]] = {pid: [] for pid in pids}
    for pid, row in rows.items():
        if pid in wanted or not _compiles(pid, row):
            continue
        owner, depth = row.parent, 0
        while owner in rows and owner not in wanted and depth < 64:
            owner, depth = rows[owner].parent, depth + 1
        if owner in wanted:
            found[owner].append((pid, row))
    return {
        pid: CompilingChildren(
            count=len(each),
            cpu_seconds=round(sum(row.cpu_seconds for _, row in each), 2),
            names=tuple(sorted({row.name for _, row in each})),
        )
        for pid, each in found.items()
    }, ()


def _compiles(pid: int, row: _Row) -> bool:
    if row.name in COMPILERS or row.name.split("-")[-1] in ("gcc", "g++"):
        return row.state != "Z"
    if row.state != "R" or not row.name.startswith(("python", "pt_", "inductor")):
        return False
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read(4096).decode("utf-8", "replace")
    except OSError:
        return False
    return any(pool in command for pool in _COMPILE_POOLS)


def _table() -> dict[int, _Row]:
    """Parent, name, state and CPU seconds of every visible process."""
    tick = os.sysconf("SC_CLK_TCK")
    rows: dict[int, _Row] = {}
    for pid in all_pids():
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                head, _, tail = file.read().rpartition(")")
            field = tail.split()
            rows[pid] = _Row(int(field[1]), head.partition("(")[2], field[0], (int(field[11]) + int(field[12])) / tick)
        except (OSError, IndexError, ValueError):
            continue
    return rows
