"""What `/proc/PID/fd` and its neighbours say of open files. Shared by the collectors that follow a descriptor."""

from __future__ import annotations

import os


def fd_links(pid: int) -> dict[int, str] | None:
    """Open descriptors of `pid` and what each points at, as the kernel writes it.

    Shape: `{2: "pipe:[4711]", 3: "/tmp/x.lock", 4: "socket:[99]"}`; None when the table may not be read.
    Errors: none. Source: `/proc/PID/fd`.
    """
    links: dict[int, str] = {}
    base = f"/proc/{pid}/fd"
    try:
        names = os.listdir(base)
    except OSError:
        return None
    for name in names:
        try:
            links[int(name)] = os.readlink(f"{base}/{name}")
        except (OSError, ValueError):
            continue
    if names and not links:
        return None
    return links


def access_mode(pid: int, fd: int) -> int | None:
    """`os.O_RDONLY`, `os.O_WRONLY` or `os.O_RDWR` of one descriptor; None when it cannot be read."""
    try:
        with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("flags:"):
                    return int(line.split()[1], 8) & os.O_ACCMODE
    except (OSError, ValueError, IndexError):
        return None
    return None


def all_pids() -> tuple[int, ...]:
    """Every pid that `/proc` shows; empty when there is no `/proc`."""
    try:
        return tuple(int(name) for name in os.listdir("/proc") if name.isdigit())
    except OSError:
        return ()


def name_of(pid: int) -> str:
    """The process name (`comm`), `?` when it has gone."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip() or "?"
    except OSError:
        return "?"


def state_of(pid: int) -> str | None:
    """The kernel's state letter of the process (R S D T t Z), X when it has gone, None when unreadable."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"
    except ProcessLookupError:
        return "X"
    except (OSError, IndexError):
        return None


def same_namespace(pid: int, kind: str) -> bool | None:
    """Whether `pid` shares our namespace of this kind (`net`, `pid`, `user`, `mnt`); None when unreadable."""
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return None


def pid_numbers(pid: int) -> tuple[int, ...]:
    """The numbers of `pid` in each pid namespace it is in, ours first, its own last; empty when unreadable."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            line = next((each for each in file if each.startswith("NSpid:")), "")
    except OSError:
        return ()
    return tuple(int(number) for number in line.split()[1:])
