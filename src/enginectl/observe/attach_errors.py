"""What the message of a stack reader that failed means. The cause is found before any hint is given.

py-spy, pystack, gdb and wrappers around them end with status 1 for everything, so the text must tell. An errno in
it outranks the sentence around it: a version that could not be read for want of permission is no version problem.
"""

from __future__ import annotations

import re

CAP_SYS_PTRACE = 19

_PERMISSION = re.compile(
    r"\bEPERM\b|\bEACCES\b|Operation not permitted|Permission [Dd]enied|PermissionError|\(os error (?:1|13)\)"
)
_NO_TOOL = re.compile(
    r"(?:command )?not found\s*$|(?:sudo|py-spy|pystack|gdb)['\"]?:.*FileNotFound"
    r"|FileNotFound\w*:.*'(?:[^']*/)?(?:sudo|py-spy|pystack|gdb)'",
    re.MULTILINE,
)
_ENOSYS = re.compile(r"Function not implemented|\(os error 38\)|\bENOSYS\b|Unsupported syscall")
_USAGE = re.compile(
    r"Found argument .* wasn't expected|unexpected argument|unrecognized arguments|no such option", re.I
)
_TRACED = re.compile(r"already traced by process (\d+)|already being traced")
_GONE = re.compile(r"No such process|\bESRCH\b|\(os error 3\)|ProcessLookupError|process \d+ (?:has )?exited", re.I)
_VERSION = re.compile(r"[Uu]nsupported (?:Python )?version(?: of Python)?:? ?([\d.]*)")
_NOT_PYTHON = re.compile(
    r"Failed to find python version|Failed to find a python interpreter|not a [Pp]ython process", re.I
)
_MERGE = re.compile(r"Failed to merge native and python frames|\bUNW_E\w+")
_THREAD_IDS = re.compile(r"failed to get os threadid|failed to get python threadid", re.I)
_FREED = {124, 137, 143, -9, -15}


def classify_attach_error(
    stderr: str,
    returncode: int | None,
    *,
    uid: int,
    caps: int | None,
    tracer_pid: int | None = None,
    memory_readable: bool | None = None,
) -> tuple[str, str]:
    """The class of a failed attach, and one sentence about it.

    Shape: (kind, message); kind is permission, gone, not-python, version, stopped, traced, enosys, no-tool,
    timeout, threads-ids, native-merge or other. `caps` is our own CapEff; `memory_readable` what opening the
    target's memory gave, when it was tried. `returncode` None means that the time limit was reached. Errors: none.
    """
    text = stderr.partition("Stack backtrace:")[0].strip()
    allowed = memory_readable is True
    if returncode is None or (returncode in _FREED and not text):
        return "timeout", "the stack reader did not end in time and was stopped"
    if returncode in (126, 127) or _NO_TOOL.search(text):
        return "no-tool", "the stack reader (or a program it is started through) is not installed here"
    if _USAGE.search(text):
        return (
            "other",
            "the stack reader does not know an option: its version does not fit, and this is only its usage text",
        )
    if _ENOSYS.search(text):
        return "enosys", "this kernel or sandbox does not offer the system calls for reading another process"
    if (found := _TRACED.search(text)) is not None:
        return "traced", _traced(int(found[1]) if found[1] else tracer_pid)
    if "Failed to suspend process" in text or "unexpected waitpid result" in text:
        return _not_stopped(text, tracer_pid)
    if _PERMISSION.search(text):
        return "permission", permission_message(uid, caps)
    if "PyRuntime section" in text:
        return _no_runtime(uid, caps, memory_readable)
    if _MERGE.search(text):
        return "native-merge", "native and Python frames could not be joined; Python frames alone can be read"
    if _THREAD_IDS.search(text):
        return (
            "threads-ids",
            "kernel thread ids could not be found with native frames on; Python frames alone can be read",
        )
    if _GONE.search(text) or "Check that the process is running" in text:
        return "gone", "the process ended before it could be read"
    if (found := _VERSION.search(text)) is not None:
        return "version", f"Python {found[1] or 'of this process'} is newer than this stack reader knows"
    if _NOT_PYTHON.search(text):
        return _not_python(text, allowed)
    return "other", _other(text)


def permission_message(uid: int, caps: int | None) -> str:
    """Why reading was refused, from what our own process may do. Never proposes sudo to root."""
    capable = caps is not None and bool(caps >> CAP_SYS_PTRACE & 1)
    if capable:
        return (
            "refused although CAP_SYS_PTRACE is held: a seccomp filter, a security module or ptrace_scope=3 forbids it"
        )
    if uid == 0:
        return "refused: being root is not enough here, CAP_SYS_PTRACE is missing"
    return "refused: this user may not read that process (no CAP_SYS_PTRACE, and ownership or ptrace_scope forbids it)"


def _traced(tracer_pid: int | None) -> str:
    return f"it is already traced{f' by pid {tracer_pid}' if tracer_pid else ' by another tool'}"


def _not_stopped(text: str, tracer_pid: int | None) -> tuple[str, str]:
    """It could be read, but not stopped."""
    if "SIGSTOP" in text or "unexpected waitpid" in text:
        return "stopped", "the process is stopped (state T), so it cannot be attached in the usual way"
    if tracer_pid:
        return "traced", _traced(tracer_pid)
    return "traced", "it can be read but not stopped: another tool traces it, or the kernel is older than 4.7"


def _no_runtime(uid: int, caps: int | None, memory_readable: bool | None) -> tuple[str, str]:
    """A missing section is how some readers report memory that they may not read."""
    capable = caps is not None and bool(caps >> CAP_SYS_PTRACE & 1)
    if memory_readable is False or (memory_readable is None and not capable):
        return "permission", permission_message(uid, caps)
    return "not-python", "no Python interpreter was found in this process"


def _not_python(text: str, memory_readable: bool) -> tuple[str, str]:
    if ".data section" in text:
        return "not-python", "libpython was found but no interpreter in it; inside its container it can be read"
    known = "" if memory_readable else " (a shell, a launcher, a frozen program, or emulated by QEMU)"
    return "not-python", f"no Python interpreter was found in this process{known}"


def _other(text: str) -> str:
    if "set namespace" in text or "Namespace::new" in text:
        return "this stack reader changes into the target's namespace, which is refused; a newer one does not"
    if "No such file or directory" in text:
        return "a file of the process was not found here: its program lives in another mount namespace"
    if "Invalid address in remote process" in text:
        return "the interpreter's address was wrong; another stack reader may find it"
    for line in text.splitlines():
        if line.strip() and not line.startswith(("Process ", "Python v")):
            return line.strip().removeprefix("Error: ")[:200]
    return "the stack reader failed without a message"
