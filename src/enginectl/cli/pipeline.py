"""What the verbs share: recognise engines, observe, diagnose, write, choose the exit code."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from enginectl.errors import UsageError
from enginectl.knowledge.loader import Knowledge, load
from enginectl.model.diagnosed import Diagnosis
from enginectl.model.observed import Recording

if TYPE_CHECKING:
    from enginectl.observe.record import Observation, Settings

SEVERITIES = ("info", "warning", "critical")
CERTAIN = frozenset({"process-stopped", "engine-exited", "worker-lost", "thread-died", "device-fault"})
"""Findings that a longer look cannot change."""
CONFIRM_SECONDS = 10.0
CONFIRM_SAMPLES = 6
MORE_SECONDS = 4.0
MORE_SAMPLES = 14


def note(text: str, *, quiet: bool = False) -> None:
    """Progress and notes go to stderr."""
    if not quiet:
        print(f"enginectl: {text}", file=sys.stderr, flush=True)


class Recogniser:
    """Title and command line -> (engine, process role), by the knowledge's process tables."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._engines = tuple(knowledge.engines.values())

    def __call__(self, title: str, command: Sequence[str]) -> tuple[str, str] | None:
        from enginectl.classify.identify import by_name

        found = by_name(self._engines, title, command)
        return (found.engine, found.role) if found else None


def packages_of(knowledge: Knowledge) -> dict[str, tuple[str, ...]]:
    """Per engine, the distributions that carry its version."""
    return {name: engine.packages for name, engine in knowledge.engines.items()}


def choose_pid(knowledge: Knowledge, name: str = "") -> int:
    """The only engine on this host, or the only one whose title or command line matches `name`.

    Errors: NotAnEngine when there is none, UsageError with the list when there are several.
    """
    import re

    from enginectl.errors import NotAnEngine
    from enginectl.observe import target

    table = target.list_processes(Recogniser(knowledge))
    roots = target.engines_on_host(table)
    if name:
        try:
            pattern = re.compile(name)
        except re.error as error:
            raise UsageError(f"--name {name}: {error}") from error
        roots = tuple(
            r
            for r in roots
            if any(pattern.search(f"{s.title} {' '.join(s.command)}") for s in target.tree_of(table, r))
        )
    if not roots:
        raise NotAnEngine("no engine is running on this host" + (f" that matches {name!r}" if name else ""))
    if len(roots) > 1:
        lines = "\n  ".join(f"--pid {r}   {' '.join(table[r].command)[:90] or table[r].title}" for r in roots)
        raise UsageError("several engines are running; choose one:", fix=lines)
    return roots[0]


def observation(pid: int, settings: Settings, knowledge: Knowledge) -> Observation:
    """An observation of the tree of `pid` that knows this knowledge's engines. Errors: NoSuchProcess, NotAnEngine."""
    from enginectl.classify.identify import ranks_of
    from enginectl.observe.record import Observation

    return Observation(pid, settings, Recogniser(knowledge), packages_of(knowledge), ranks_of)


def needs_confirmation(diagnosis: Diagnosis) -> bool:
    """Whether a longer look could change or firm up this verdict: it looks hung, frozen or open."""
    verdict = diagnosis.verdict
    if verdict.finding in CERTAIN:
        return False
    frozen = diagnosis.engine_counters.get("frozen_seconds", 0.0) > 0 and (
        diagnosis.engine_counters.get("running", 0.0) + diagnosis.engine_counters.get("waiting", 0.0) > 0
        or diagnosis.engine_counters.get("unanswered_requests", 0.0) > 0
    )
    if verdict.finding == "attach-denied":
        return frozen
    if verdict.finding == "idle" and diagnosis.engine_counters.get("unclear_requests", 0.0) > 0:
        return True
    return verdict.state == "hung" or verdict.outcome == "undecided" or frozen


OPAQUE_CLASSES = frozenset({"cpu", "device", "lock", "collective", "unknown"})
"""Places whose Python frames do not tell what is waited for below them."""


def needs_native(diagnosis: Diagnosis) -> bool:
    """Whether one native sample could say more: it stands still at a place that Python cannot see into."""
    verdict = diagnosis.verdict
    stands = verdict.state == "hung" or verdict.outcome == "undecided"
    return stands and verdict.culprit is not None and verdict.culprit.wait_class in OPAQUE_CLASSES


def needs_more_samples(diagnosis: Diagnosis) -> bool:
    """Whether the verdict rests on a share of few stack samples that lies near its own or another rule's threshold."""
    if diagnosis.verdict.state not in ("busy", "slow") or diagnosis.cost.samples > 10:
        return False
    shares = [
        e for r in diagnosis.rules for e in r.evidence if e.unit == "ratio" and e.fact.startswith(("role.wait", "gil."))
    ]
    return any(
        isinstance(e.value, float)
        and isinstance(e.threshold, float)
        and e.value > 0.15
        and abs(e.value - e.threshold) < 0.3
        for e in shares
    )


def exit_code(diagnosis: Diagnosis, fail_on: str) -> int:
    """The contract's exit code: 0, 10, 22 or 23."""
    verdict = diagnosis.verdict
    if verdict.finding == "attach-denied":
        return 22
    if verdict.outcome == "undecided":
        return 23
    if fail_on == "never":
        return 0
    threshold = SEVERITIES.index(fail_on)
    return 10 if any(SEVERITIES.index(f.severity) >= threshold for f in diagnosis.findings) else 0


def knowledge_of(extra: str) -> Knowledge:
    """The packaged knowledge, with `--knowledge DIR` before it."""
    return load(extra)


def diagnosed(recording: Recording, knowledge: Knowledge) -> Diagnosis:
    """The pure part of the pipeline."""
    from enginectl.diagnose.diagnose import diagnose

    return diagnose(recording, knowledge)


def use_color(no_color: bool) -> bool:
    """Whether stdout gets colours: NO_COLOR, FORCE_COLOR, TERM=dumb and pipes are honoured."""
    if no_color or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@functools.lru_cache(maxsize=1)
def terminal_width() -> int:
    """80 columns, or the terminal's width when it is narrower or wider, up to 120."""
    if not sys.stdout.isatty():
        return 80
    import shutil

    return max(60, min(120, shutil.get_terminal_size((80, 24)).columns))


def write(text: str, output: str) -> None:
    """Data to stdout, or whole to a file: never half of it. Errors: UsageError when it cannot be written."""
    text = text if text.endswith("\n") else text + "\n"
    if output and output != "-":
        return write_bytes(text.encode("utf-8", "replace"), output)
    sys.stdout.write(text)
    sys.stdout.flush()


def write_bytes(data: bytes, output: str) -> None:
    """Data whole to a file: never half of it. Errors: UsageError when it cannot be written.

    What is there already and is no regular file (`/dev/null`, a pipe, a terminal) is written to, never replaced.
    """
    path = Path(output)
    try:
        if path.exists() and (not path.is_file() or path.parts[:2] in (("/", "dev"), ("/", "proc"))):
            # appended, not truncated: behind /dev/stdout may be a file that the shell has opened for appending
            with open(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as device:
                device.write(data)
            return
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(file.name, 0o666 & ~mask)
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error
