"""Writes that block on a full pipe or terminal, and who holds the end that nobody reads.

How many bytes wait in somebody else's pipe cannot be asked without opening it, which would add a reader. What
can be known from outside: a thread that the kernel keeps in a pipe write is blocked on a full one; which
descriptor it writes to; who else holds the read end and what that process is doing.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping

from enginectl.model.observed import Gap
from enginectl.observe.fds import access_mode, all_pids, fd_links, name_of, state_of

PIPE_WRITE_WCHANS = frozenset({"pipe_write", "anon_pipe_write", "pipe_wait_writable", "fifo_pipe_write"})
TERMINAL_WRITE_WCHANS = frozenset({"n_tty_write", "wait_woken", "tty_write_lock"})
WRITE_WCHANS = PIPE_WRITE_WCHANS | TERMINAL_WRITE_WCHANS
_WRITE_CALLS = {"x86_64": frozenset({1, 18, 20, 275, 276}), "aarch64": frozenset({64, 66, 68, 75, 76})}
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")
_TERMINAL = "a terminal that takes no output (paused with Ctrl-S, or nobody reads)"
_STATES = {"T": "stopped", "t": "traced", "Z": "a zombie", "D": "in an uninterruptible wait", "X": "gone"}


def read_pipes(pid: int, wchans: Mapping[int, str] | None = None) -> tuple[tuple[str, ...], tuple[Gap, ...]]:
    """Blocked writes of `pid`, one line each: descriptor, pipe, who holds the read end and what that one does.

    Shape: `("fd 2 -> pipe:[123], read end held by pid 77 (tee), stopped",)`, empty when no write blocks.
    `wchans` (thread id to wait channel) saves reading them again. Errors: none.
    Source: `/proc/PID/task/TID/{wchan,syscall}`, `/proc/*/fd`.
    """
    known = _wchans(pid) if wchans is None else wchans
    if known is None or (known and all(value in ("", "0") for value in known.values()) and not _readable(pid)):
        reason = f"the wait channels of pid {pid} may not be read, so a blocked write would not show"
        return (), (Gap(source="pipes", reason=reason, remedy="run enginectl as the engine's user, or as root"),)
    blocked = [tid for tid, value in known.items() if value in WRITE_WCHANS]
    if not blocked:
        return (), ()
    links = fd_links(pid)
    if links is None:
        count = sum(known[tid] in PIPE_WRITE_WCHANS for tid in blocked)
        unknown = (f"fd unknown -> pipe, {count} thread(s) blocked in a write",) if count else ()
        return unknown, (
            Gap(source="pipes", reason=f"the open files of pid {pid} may not be read", remedy="run as root"),
        )
    targets: dict[str, set[int]] = {}
    for tid in blocked:
        for fd in _written(pid, tid, known[tid], links):
            targets.setdefault(links[fd], set()).add(fd)
    lines: list[str] = []
    for link, fds in sorted(targets.items(), key=lambda item: min(item[1])):
        names = "/".join(str(fd) for fd in sorted(fds))
        holders = _TERMINAL if link.startswith(_TERMINALS) else _holders(pid, link)
        lines.append(f"fd {names} -> {link}, {holders}")
    return tuple(lines), ()


def _written(pid: int, tid: int, wchan: str, links: dict[int, str]) -> list[int]:
    """Descriptors that the blocked thread may be writing to: the exact one where the kernel tells."""
    exact = _syscall_fd(pid, tid)
    if exact is not None:
        link = links.get(exact, "")
        return [exact] if link.startswith(("pipe:", *_TERMINALS)) else _named(links, exact)
    if wchan not in PIPE_WRITE_WCHANS:
        return []
    return [fd for fd, link in links.items() if link.startswith("pipe:") and access_mode(pid, fd) == os.O_WRONLY]


def _named(links: dict[int, str], fd: int) -> list[int]:
    """A named pipe shows as a plain path."""
    try:
        return [fd] if links.get(fd, "").startswith("/") and not os.path.isfile(links[fd]) else []
    except (OSError, KeyError):
        return []


def _syscall_fd(pid: int, tid: int) -> int | None:
    """First argument of the write call that the thread is in; None when unreadable or in another call."""
    try:
        with open(f"/proc/{pid}/task/{tid}/syscall", encoding="ascii", errors="replace") as file:
            field = file.read().split()
        if len(field) > 1 and int(field[0]) in _WRITE_CALLS.get(platform.machine(), frozenset()):
            return int(field[1], 16)
    except (OSError, ValueError):
        return None
    return None


def _holders(pid: int, link: str) -> str:
    """Who can read from this pipe, and what that process does instead."""
    found: list[str] = []
    for other in all_pids():
        links = fd_links(other)
        if not links:
            continue
        reads = any(
            target == link and access_mode(other, fd) in (os.O_RDONLY, os.O_RDWR) for fd, target in links.items()
        )
        if reads:
            state = state_of(other) or "?"
            doing = _STATES.get(state) or f"not reading (state {state})"
            found.append(f"pid {other} ({name_of(other)}), {doing}" + (" - the writer itself" if other == pid else ""))
    if not found:
        return "read end held by no process that is visible here"
    return "read end held by " + "; ".join(sorted(found, key=lambda text: "the writer itself" in text)[:4])


def _wchans(pid: int) -> dict[int, str] | None:
    found: dict[int, str] = {}
    try:
        tids = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return None
    for tid in tids:
        try:
            with open(f"/proc/{pid}/task/{tid}/wchan", encoding="ascii", errors="replace") as file:
                found[int(tid)] = file.read()
        except (OSError, ValueError):
            continue
    return found


def _readable(pid: int) -> bool:
    """Whether the kernel would tell us wait channels: it needs the same right as the descriptor table."""
    return fd_links(pid) is not None
