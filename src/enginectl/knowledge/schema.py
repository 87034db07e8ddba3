"""The rows of the knowledge files. TOML decodes straight into these types; unknown keys are refused.

A frame pattern is `PATH:FUNCTION`. PATH is a path suffix compared by whole components (`core.py`,
`v1/engine/core.py`), a glob when it holds `*` (`torch/*`, matched against any component-aligned suffix), with
alternatives after `|`; `*` alone is any file. FUNCTION is compared with the last component of the qualified
name, with `|` alternatives and `*` globs. A leading `^` ties the pattern to the innermost frame.
`frames` lists patterns innermost first, gaps allowed; `not_frames` must match nowhere on the stack.
"""

from __future__ import annotations

import msgspec

WAIT_CLASSES = (
    "idle", "peer", "lock", "gil", "device", "collective", "ipc-send", "io", "timer", "cpu", "startup",
    "shutdown", "unknown",
)  # fmt: skip
THREAD_ROLES = (
    "engine-loop", "ipc", "ipc-in", "ipc-out", "output", "worker-loop", "async-output-copy", "frontend-loop",
    "tokenizer-pool", "grammar-pool", "kv-transfer", "monitor", "helper",
)  # fmt: skip
PROCESS_ROLES = ("frontend", "engine-core", "worker", "detokenizer", "tokenizer", "coordinator", "helper")
STATES = ("idle", "busy", "slow", "hung", "starting", "crashed", "unknown")
SEVERITIES = ("info", "warning", "critical")
CONFIDENCES = ("low", "medium", "high")


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all knowledge rows."""


class WaitPoint(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A place where a thread can stand, and what standing there means.

    `wait_class` (TOML key `class`) is one of WAIT_CLASSES. `role` is the thread role that this place proves, if
    any; `process_role` restricts the row to such processes (or proves it, when the process is untitled).
    `waits_for` is the role that must act next, `worker:worker-loop` when it lives in another process; `through`
    names the channel. `kind` groups places across engines for the rules: `schedule`, `forward`, `detokenize`,
    `encode` and so on. `priority` breaks a deliberate tie (higher wins). `os_states` restricts the row to these
    states of the thread (uvloop's opaque frame). `versions` is the engine span `0.10.2-` or `0.8.5-0.14.1`, for
    coverage only: matching never asks the version. `source` is the upstream file.
    """

    id: str
    wait_class: str = msgspec.field(name="class")
    meaning: str
    frames: tuple[str, ...]
    not_frames: tuple[str, ...] = ()
    role: str | None = None
    process_role: str | None = None
    waits_for: str | None = None
    through: str | None = None
    kind: str | None = None
    priority: int = 0
    os_states: str = ""
    versions: str = ""
    source: str = ""
    example: str = ""
    note: str = ""


class ThreadRole(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a thread is recognised inside a process of one role.

    `name` is a regular expression on the thread name, `frames` are patterns of which any one may match any frame
    (outermost frames are the reliable ones). `required` says that the role exists in every healthy process of
    this kind once it serves; `plays` names the role of the well-known three-thread picture it stands for.
    """

    role: str
    name: str = ""
    frames: tuple[str, ...] = ()
    required: bool = False
    plays: str = ""


class ProcessKind(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a process of an engine is recognised: by title, by command line, or by any frame of its main thread."""

    role: str
    title: str = ""
    command: str = ""
    frames: tuple[str, ...] = ()
    threads: tuple[ThreadRole, ...] = ()
    note: str = ""


class Engine(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One engine: its processes, in order of precedence, and the packages that carry its version.

    `counters` maps the common names (running, waiting, kv_usage_ratio, steps, generation_tokens, prompt_tokens,
    finished, aborted, preemptions, weights_random) to metric names, first present wins. `embeds` names engines
    whose wait points also count (for example `torch`). `keep_alive_seconds` is how long the front end leaves a
    connection open on which nothing is owed, and `keep_alive_variable` the environment variable that changes it.
    `watchdog_seconds` is after how long without progress the engine ends itself, and `watchdog_flag` changes it.
    """

    engine: str
    packages: tuple[str, ...] = ()
    counters: dict[str, tuple[str, ...]] = {}
    rank_tags: str = ""
    keep_alive_seconds: float | None = None
    keep_alive_variable: str = ""
    watchdog_seconds: float | None = None
    watchdog_flag: str = ""
    process: tuple[ProcessKind, ...] = ()


class WaitFile(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One file of wait points."""

    wait: tuple[WaitPoint, ...]


class Condition(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One comparison: a named fact, of which role, at which wait (id glob or kind), against a value."""

    fact: str
    op: str
    value: float | str | bool
    of: str = ""
    wait: str = ""


class Case(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One way in which a rule fires: all of `when` hold and none of `unless` does.

    `state`, `severity`, `confidence` and `summary` override the rule's. `culprit` names the role (or `sink`,
    `cycle`, `stopped`, `gil-holder`, `hot-thread`, `odd-rank`, `odd-count`) whose thread is shown as the culprit.
    `candidates` and `needs` are for undecided findings: what the clocks alone leave open, and what would tell.
    """

    when: tuple[Condition, ...]
    unless: tuple[Condition, ...] = ()
    state: str = ""
    severity: str = ""
    confidence: str = ""
    summary: str = ""
    culprit: str = ""
    candidates: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


class Examples(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Recordings on which the rule must fire, and on which it must not."""

    fires: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()


class Rule(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One finding of the closed list. Cases are tried in order; the first that fires counts.

    `rank` orders fired findings: the highest one is the verdict. `summary`, with `{fact}` fields, is the sentence.
    """

    id: str
    finding: str
    state: str
    severity: str
    confidence: str = "high"
    rank: int
    summary: str
    needs: tuple[str, ...] = ()
    why: str
    false_alarms: str
    not_to_be_read_as: str
    culprit: str = ""
    case: tuple[Case, ...]
    advice: tuple[str, ...] = ()
    examples: Examples = Examples()


class Advice(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One piece of advice for one engine.

    `flag` must exist in the running version (`versions` span) and must not already have `value`; empty for advice
    without a flag. `text` may use `{pid}`, `{culprit_pid}`, `{watchdog_seconds}`, `{watchdog_left}`;
    `expect` says what should change.
    """

    id: str
    text: str
    expect: str = ""
    flag: str = ""
    value: str = ""
    versions: str = ""
    command: str = ""


class AdviceFile(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One file of advice."""

    advice: tuple[Advice, ...]
