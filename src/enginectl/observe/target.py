"""Finds engine processes and the whole tree that one of them belongs to. Reads `/proc` only; attaches to nothing."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import psutil

from enginectl.errors import NoSuchProcess, NotAnEngine, UsageError
from enginectl.model.observed import ProcessFact
from enginectl.observe import actors, threads
from enginectl.observe.redact import redact_command

Recognise = Callable[[str, Sequence[str]], tuple[str, str] | None]
"""(title, command line) -> (engine, process role), or None. The knowledge behind it belongs to the caller."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A process as listed: enough to build trees without another look at it."""

    pid: int
    parent_pid: int
    started_at: float
    title: str
    command: tuple[str, ...]
    state: str
    engine: str | None
    role: str | None


def _command(pid: int) -> tuple[str, ...]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(part.decode(errors="replace") for part in raw.rstrip(b"\0").split(b"\0") if part)


def title_of(comm: str, command: Sequence[str]) -> str:
    """The full title: the kernel keeps 15 characters, a retitled command line holds the rest."""
    if len(command) == 1 and command[0].startswith(comm):
        return command[0].strip()
    return comm


def _started_at(start_ticks: int) -> float:
    return psutil.boot_time() + start_ticks / threads.CLOCK_TICKS


def look(pid: int, recognise: Recognise) -> Seen | None:
    """One process, or None when it is gone or a kernel thread."""
    stat = threads.process_stat(pid)
    if stat is None:
        return None
    command = _command(pid)
    title = title_of(stat.comm, command)
    known = recognise(title, command)
    return Seen(
        pid=pid,
        parent_pid=stat.parent_pid,
        started_at=_started_at(stat.start_ticks),
        title=title,
        command=command,
        state=stat.state,
        engine=known[0] if known else None,
        role=known[1] if known else None,
    )


def list_processes(recognise: Recognise) -> dict[int, Seen]:
    """All processes of the host that can be seen, by pid. A Ray actor of an engine stands below its caller."""
    found = (look(pid, recognise) for pid in psutil.pids())
    table = {seen.pid: seen for seen in found if seen is not None}
    known = [seen for seen in table.values() if seen.engine is not None and seen.role != "helper"]
    if lost := [
        seen.pid for seen in known if seen.title.startswith(actors.TITLE) and not _is_engine(table.get(seen.parent_pid))
    ]:
        for pid, callers in actors.callers(lost, [seen.pid for seen in known]).items():
            # actors may call each other: nobody stands below itself
            above = next((caller for caller in callers if pid not in _ancestors(table, caller)), None)
            if above is not None:
                table[pid] = msgspec.structs.replace(table[pid], parent_pid=above)
    return table


def _is_engine(seen: Seen | None) -> bool:
    return seen is not None and seen.engine is not None


def _ancestors(table: dict[int, Seen], pid: int) -> list[int]:
    """`pid` and all above it."""
    found: list[int] = []
    while (node := table.get(pid)) is not None and pid not in found:
        found.append(pid)
        pid = node.parent_pid
    return found


def _children(table: dict[int, Seen]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for seen in table.values():
        children.setdefault(seen.parent_pid, []).append(seen.pid)
    return children


def descendants(table: dict[int, Seen], pid: int) -> list[int]:
    """All processes below `pid`, breadth first."""
    children = _children(table)
    result: list[int] = []
    queue = list(children.get(pid, ()))
    while queue:
        child = queue.pop(0)
        result.append(child)
        queue += children.get(child, ())
    return result


def is_python(pid: int) -> bool | None:
    """Whether an interpreter runs in this process; None when that may not be seen."""
    try:
        exe = Path(f"/proc/{pid}/exe").resolve().name
        if re.match(r"(?:python|pypy|pt_main)", exe):
            return True
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except PermissionError:
        return None
    except OSError:
        return False
    return "libpython" in maps or "/python3" in maps or "/lib-dynload/" in maps


def _made_by(table: dict[int, Seen], seen: Seen, above: Seen) -> bool:
    """Whether `above` is a Python program that made this process through multiprocessing, retitled or not.

    An orphan has a new parent that did not: the host's or the container's first process, or a supervisor with other
    engines below it.
    """
    if seen.title.startswith(actors.TITLE):
        return False  # Ray's daemon made it, for whichever job
    if above.pid in (1, os.getpid()) or any(s.parent_pid == above.pid and s.role == "frontend" for s in table.values()):
        return False
    made = len(seen.command) == 1 or seen.command == above.command or "multiprocessing" in " ".join(seen.command)
    return made and bool(is_python(above.pid))


def root_of(table: dict[int, Seen], pid: int) -> int:
    """The topmost ancestor that is part of an engine, or `pid` itself.

    An engine core or worker that is a multiprocessing child has a front end: when none is known above it, the Python
    program that started it is taken for that (an offline script, a server that embeds the engine).
    """
    root = pid
    node = table.get(pid)
    while node is not None and (parent := table.get(node.parent_pid)) is not None:
        if parent.engine is None:
            break
        node = parent
        root = node.pid
    if node is not None and node.role in ("engine-core", "worker"):
        above = table.get(node.parent_pid)
        if above is not None and above.engine is None and _made_by(table, node, above):
            return above.pid
    return root


def engine_root(table: dict[int, Seen], pid: int) -> int:
    """The root of the one engine that `pid` belongs to, or that runs below it (a launcher, a shell, a supervisor).

    Errors: UsageError with the list when several run below it.
    """
    root = root_of(table, pid)
    if table[root].engine is not None:
        return root
    below = set(descendants(table, pid))
    roots = sorted({root_of(table, p) for p in below if table[p].engine and table[p].role != "helper"} & below)
    if len(roots) > 1:
        lines = "\n  ".join(f"--pid {r}   {table[r].title}" for r in roots)
        raise UsageError(f"several engines run below pid {pid}; choose one:", fix=lines)
    return roots[0] if roots and table[roots[0]].role == "frontend" else root


def tree_of(table: dict[int, Seen], pid: int) -> tuple[Seen, ...]:
    """The engine tree that `pid` belongs to: top parent first, Python children only, helpers included."""
    root = engine_root(table, pid)
    members = [table[root]]
    for child in descendants(table, root):
        seen = table[child]
        if child == os.getpid():
            continue  # an observer below the same supervisor is no part of the engine
        if seen.engine is not None or is_python(child) is not False or seen.state in "ZX":
            members.append(seen)
    return tuple(members)


def engines_on_host(table: dict[int, Seen]) -> tuple[int, ...]:
    """Pids of the top parents of all recognised engines, each tree once."""
    roots = {root_of(table, seen.pid) for seen in table.values() if seen.engine and seen.role != "helper"}
    return tuple(sorted(roots))


def python_version(pid: int) -> str | None:
    """`3.11`, from the interpreter's file name or its library, or None."""
    with contextlib.suppress(OSError):
        exe = Path(f"/proc/{pid}/exe").resolve().name
        if found := re.search(r"python(3\.\d+)", exe):
            return found[1]
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        if found := re.search(r"(?:libpython|/lib/python)(3\.\d+)", maps):
            return found[1]
    return None


def _site_folders(pid: int) -> tuple[Path, ...]:
    """site-packages folders from which the process has mapped a library, seen through its own root."""
    with contextlib.suppress(OSError):
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        places = re.findall(r"(/\S*?/(?:site|dist)-packages)/", maps)
        return tuple(Path(f"/proc/{pid}/root{place}") for place in dict.fromkeys(places))
    return ()


def engine_version(pid: int, packages: Iterable[str]) -> str | None:
    """The installed version of the first of `packages`, from the dist-info folders the process can see."""
    for folder in _site_folders(pid):
        for package in packages:
            for info in sorted(folder.glob(f"{package.replace('-', '_')}-*.dist-info")):
                return info.name.removesuffix(".dist-info").rpartition("-")[2]
    return None


def parse_flags(command: Sequence[str]) -> dict[str, str]:
    """`--flag value`, `--flag=value` and bare `--flag` (value `true`) of a command line."""
    flags: dict[str, str] = {}
    words = list(command)
    for index, word in enumerate(words):
        if not word.startswith("--") or word == "--":
            continue
        flag, equals, value = word.partition("=")
        if not equals:
            following = words[index + 1] if index + 1 < len(words) else ""
            value = following if following and not following.startswith("--") else "true"
        flags[flag] = value
    return flags


def fact_of(
    seen: Seen, packages: dict[str, tuple[str, ...]], ranks: dict[str, int], *, redact: bool = True
) -> tuple[ProcessFact, bool]:
    """The process fact, and whether a secret was taken out of its command line."""
    command, taken = redact_command(seen.command) if redact else (seen.command, ())
    title, title_taken = redact_command(seen.title.split(" ")) if redact else ((seen.title,), ())
    fact = ProcessFact(
        pid=seen.pid,
        started_at=seen.started_at,
        parent_pid=seen.parent_pid,
        title=" ".join(title),
        command=command if len(command) > 1 else (),
        engine=seen.engine,
        engine_version=engine_version(seen.pid, packages.get(seen.engine, ())) if seen.engine else None,
        python_version=python_version(seen.pid),
        role=seen.role,
        ranks=ranks,
        flags=parse_flags(command),
    )
    return fact, bool(taken or title_taken)


def require(pid: int, recognise: Recognise) -> Seen:
    """The process of this pid.

    Errors: NoSuchProcess; NotAnEngine when it is no Python process, naming its Python descendants.
    """
    seen = look(pid, recognise)
    if seen is None:
        raise NoSuchProcess(f"no process has pid {pid}")
    if seen.state == "Z":
        return seen
    if seen.engine is None and is_python(pid) is False:
        table = list_processes(recognise)
        if engine_root(table, pid) != pid:
            return seen
        below = [p for p in descendants(table, pid) if is_python(p)]
        hint = "Python processes below it: " + ", ".join(map(str, below)) if below else ""
        raise NotAnEngine(f"pid {pid} ({seen.title}) is not a Python process", fix=hint)
    return seen
