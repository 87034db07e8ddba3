"""Log lines around a dump, reduced to class words. The lines themselves are never kept: they can hold prompts."""

from __future__ import annotations

import re

SCAN_LIMIT = 2048
"""Characters of a line that are looked at."""

_DEATHS = (
    (
        "collective-timeout",
        r"[Ww]atchdog caught collective operation timeout|NCCL watchdog thread terminated"
        r"|Some NCCL operations have failed or timed out|collective operation timeout",
    ),
    (
        "out-of-memory",
        r"CUDA out of memory|OutOfMemoryError|[Oo]om[-_ ][Kk]ill|Out of memory: Killed process|NPU out of memory",
    ),
    (
        "device-error",
        r"(?:CUDA|HIP|MUSA|NPU|XPU|ACL|CUDA driver) error\b|cudaError[A-Z]\w+|CUDA_ERROR_\w+|illegal memory access"
        r"|device-side assert|\bXid\b|unspecified launch failure|uncorrectable ECC",
    ),
    (
        "fatal-signal",
        r"Fatal Python error:|Segmentation fault|SIGABRT|SIGSEGV|SIGBUS|core dumped|terminate called after throwing"
        r"|died with <Signals|\*\*\* Process received signal|SIGQUIT received",
    ),
)
_NOTES = (
    ("watchdog-timeout", r"[Ww]atchdog timeout|soft watchdog|[Ww]atchdog .{0,40}time[ds]? ?out"),
    ("shm-broadcast-wait", r"No available shared memory broadcast block"),
    (
        "worker-died",
        r"died unexpectedly|[Ww]orker .{0,60}(?:has died|was killed|exited unexpectedly)|ActorDiedError"
        r"|worker died|killed by signal",
    ),
    ("engine-dead", r"EngineDeadError|EngineCore encountered (?:a fatal error|an issue)|Engine loop is not running"),
    ("step-timeout", r"RPC call to .{0,60} timed out|execute_model timed out|Timed out waiting for .{0,40}worker"),
    ("health-check-failed", r"[Hh]ealth check failed|health_generate.{0,40}(?:fail|time)"),
    ("jit-compile", r"JIT compilation during inference|Loading JIT ops|torch\.compile took|[Cc]apturing (?:CUDA|cuda)"),
    ("loading-weights", r"Loading (?:safetensors|pt|weights|model weights)|Load weight begin|Starting to load model"),
    ("stalled-device-job", r"timedout_job|GPU (?:hang|reset)|fallen off the bus"),
    ("kv-cache-pressure", r"KV cache pool is full|[Rr]etract|preempted by|not enough (?:KV|kv)"),
    ("kv-transfer-error", r"KV ?[Tt]ransfer.{0,40}(?:fail|time|error)|[Mm]ooncake.{0,60}(?:fail|timeout)"),
    ("process-exited", r"exited with code -?\d|Shutting down|Received signal|[Tt]erminated by signal"),
)  # fmt: skip
_DEATH = tuple((word, re.compile(pattern)) for word, pattern in _DEATHS)
_NOTE = tuple((word, re.compile(pattern)) for word, pattern in _NOTES)
_ANY = re.compile("|".join(pattern for _, pattern in (*_DEATHS, *_NOTES)))
_THROUGHPUT = re.compile(
    r"generation throughput: {0,2}(\d[\d.]{0,12}) tok|gen throughput \(token/s\): {0,2}(\d[\d.]{0,12})"
)
_RUNNING = re.compile(r"Running: (\d{1,9}) reqs?|#running-req: (\d{1,9})")
_WAITING = re.compile(r"Waiting: (\d{1,9}) reqs?|#queue-req: (\d{1,9})")
_STATS = re.compile(r"throughput|#running-req|Running: \d")

_TOOL = re.compile(
    r"^\s*(?:\w+: )?[Ee]rror: |Pyspy failed to dump|Failed to execute `|py-spy: (?:command )?not found"
    r"|[Pp]ermission [Dd]enied|Operation not permitted|\(os error \d+\)|Engine error:|ptrace: "
    r"|No module named .?py_?spy"
    r"|Could not attach to process|py-spy.{0,40}(?:failed|not found)|Unable to .{0,20}attach"
)
_TOOL_CLASSES = (
    (
        "no-tool",
        r"(?:py-?spy|pystack|gdb)\S{0,3}:? (?:command )?not found|command not found|No module named .?py_?(?:spy|stack)"
        r"|No such file or directory: .{0,3}(?:py-spy|gdb)|is not recognized as|executable file not found",
    ),
    ("stopped", r"stopped|[Tt]imed out waiting|is being traced|already (?:being )?traced|already attached"),
    (
        "permission",
        r"[Pp]ermission [Dd]enied|Operation not permitted|os error 1\)|os error 13\)|EPERM|EACCES|SYS_PTRACE"
        r"|ptrace_scope|elevated permissions|must be root|requires root",
    ),
    (
        "version",
        r"[Uu]nsupported version|find python version|Py_Version|find (?:a )?python (?:interpreter|library)"
        r"|PyInterpreterState|interpreter state|wasn't expected|unexpected argument|os error 38\)"
        r"|Function not implemented"
        r"|unrecognized (?:arguments|subcommand)|isn't valid|os threadid",
    ),
)
_TOOL_CLASS = tuple((word, re.compile(pattern)) for word, pattern in _TOOL_CLASSES)


def death_of(line: str) -> str | None:
    """The class of a death notice in a log line: fatal-signal, device-error, collective-timeout, out-of-memory."""
    head = line[:SCAN_LIMIT]
    return next((word for word, pattern in _DEATH if pattern.search(head)), None)


def words_of(line: str) -> tuple[str, ...]:
    """The class words of one log line, () when it says nothing that a diagnosis uses.

    Death notices give their own class as a word too. Numbers of an engine's statistics line become
    `throughput-moving`, `throughput-zero`, `requests-running`, `requests-waiting`, `requests-none`.
    """
    head = line[:SCAN_LIMIT]
    words: list[str] = []
    if _ANY.search(head):
        words += [word for word, pattern in (*_DEATH, *_NOTE) if pattern.search(head)]
    if _STATS.search(head):
        words += _statistics(head)
    return tuple(words)


def _statistics(head: str) -> list[str]:
    found, running, waiting = _THROUGHPUT.search(head), _RUNNING.search(head), _WAITING.search(head)
    words = []
    if found:
        value = (found.group(1) or found.group(2)).rstrip(".")
        words.append("throughput-zero" if not value.strip("0.") else "throughput-moving")
    counts = [int(m.group(1) or m.group(2)) for m in (running, waiting) if m]
    if running and counts[0]:
        words.append("requests-running")
    if waiting and counts[-1]:
        words.append("requests-waiting")
    if running and waiting and not any(counts):
        words.append("requests-none")
    return words


def tool_error_of(line: str) -> str | None:
    """The class of an error text of a stack tool: permission, no-tool, version, stopped or other; else None."""
    head = line[:SCAN_LIMIT]
    if not _TOOL.search(head):
        return None
    return next((word for word, pattern in _TOOL_CLASS if pattern.search(head)), "other")
