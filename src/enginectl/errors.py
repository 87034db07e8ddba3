"""Everything that can go wrong, with the exit code and the help it owns.

EnginectlError
├── UsageError            2   bad options, two engines to choose from
├── NoSuchProcess        20   no such pid, or it exited while being observed
├── NotAnEngine          21   not Python, or no engine that enginectl knows
├── AttachDenied         22   permission: one cause, one fix
└── UnreadableInput      23   a file that holds no evidence at all
"""

from __future__ import annotations


class EnginectlError(Exception):
    """A failure told in one line; `fix` is the one step that helps, when there is one."""

    exit_code = 1

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class UsageError(EnginectlError):
    """The command line cannot be carried out as given."""

    exit_code = 2


class NoSuchProcess(EnginectlError):
    """There is no such process, or it went away while being observed."""

    exit_code = 20


class NotAnEngine(EnginectlError):
    """The process exists but is no engine process that can be read."""

    exit_code = 21


class AttachDenied(EnginectlError):
    """Stacks may not be read, and nothing else was enough for a verdict."""

    exit_code = 22


class UnreadableInput(EnginectlError):
    """A saved file that cannot be opened or decoded at all."""

    exit_code = 23
