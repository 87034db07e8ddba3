"""`enginectl record`: evidence to a file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from enginectl.model.observed import Recording
    from enginectl.observe.record import Observation
    from enginectl.record.session import Pace

SHARING_SECONDS = 4.0
SHARING_SNAPSHOTS = 3
SHARING_LIMIT_SECONDS = 14.0
SHARING_READ_SECONDS = 2.0
"""No single read of a bundle takes longer, so that it ends before the engine's own watchdog does."""


def record(
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="The recording; - is stdout.")],
    pid: Annotated[int | None, typer.Option(help="Any process of the engine: its whole tree is recorded.")] = None,
    name: Annotated[str, typer.Option(metavar="REGEX", help="The engine whose title or command line matches.")] = "",
    duration: Annotated[float, typer.Option(min=0, help="Seconds to record; 0: until interrupted.")] = 10.0,
    rate: Annotated[float, typer.Option(min=0.01, max=20, help="Snapshots a second.")] = 2.0,
    for_sharing: Annotated[
        bool, typer.Option("--for-sharing", help="The incident bundle: all that a colleague needs, in 15 s.")
    ] = False,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The engine's log: its last lines as classes, not as text.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    only_pid: Annotated[bool, typer.Option("--only-pid", help="Record this one process only.")] = False,
    native: Annotated[bool, typer.Option("--native", help="Read native frames too (slower).")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds any single read may take.")] = 10.0,
    url: Annotated[str, typer.Option(metavar="URL", help="The engine's /metrics; found by itself when left out.")] = "",
    token: Annotated[str, typer.Option(help="Bearer token for --url.")] = "",
    no_gpu: Annotated[bool, typer.Option("--no-gpu", help="Do not ask NVML.")] = False,
    knowledge: Annotated[str, typer.Option(metavar="DIR", help="More engines.")] = "",
    redact: Annotated[bool, typer.Option("--redact/--no-redact", help="Take secrets out of command lines.")] = True,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No notes on stderr.")] = False,
) -> None:
    """Record an engine to a file that doctor, top and the exports read."""
    from enginectl.cli import pipeline
    from enginectl.errors import UsageError
    from enginectl.observe.record import Settings
    from enginectl.record.stop import Deadline, stop_by_signal

    began = time.monotonic()
    if for_sharing and not redact:
        raise UsageError("a file for sharing is always redacted", fix="leave --no-redact out")
    if output == "-" and sys.stdout.isatty():
        raise UsageError("a recording is no text for a terminal", fix="-o FILE, or a pipe behind -o -")
    if for_sharing:
        timeout, duration, rate = SHARING_READ_SECONDS, SHARING_SECONDS, (SHARING_SNAPSHOTS - 1) / SHARING_SECONDS
    settings = Settings(
        timeout_seconds=timeout, native=native, url=url, token=token, gpu=not no_gpu, only_pid=only_pid, redact=redact
    )
    rows = pipeline.knowledge_of(knowledge)
    with stop_by_signal() as stop:
        pace = Deadline(stop, began + SHARING_LIMIT_SECONDS) if for_sharing else stop
        observation = pipeline.observation(pid if pid is not None else pipeline.choose_pid(rows, name), settings, rows)
        head = _head(observation, log)
        told = _write(observation, head, output, force, (duration, rate, pace), quiet)
    if not quiet:
        _tell(head, told, output, began, for_sharing)


def _head(observation: Observation, log: Path | None) -> Recording:
    """Everything that stands in front of the snapshots. Errors: UsageError when the log cannot be read."""
    from enginectl.errors import UsageError
    from enginectl.observe.environment import read_environment
    from enginectl.read.remarks import words_of
    from enginectl.record.sharing import tail_of, with_environment, with_log

    head = with_environment(observation.recording(), read_environment)
    if log is None:
        return head
    try:
        with log.open("rb") as stream:
            return with_log(head, log.name, tail_of(stream), words_of)
    except OSError as error:
        raise UsageError(f"cannot read {log}: {error.strerror}") from error


def _write(
    observation: Observation, head: Recording, output: str, force: bool, how: tuple[float, float, Pace], quiet: bool
) -> list[str]:
    """Record; the lines that say what is inside. Errors: UsageError; NoSuchProcess when the engine has gone."""
    from enginectl.errors import NoSuchProcess
    from enginectl.record.contents import Contents
    from enginectl.record.session import record_into
    from enginectl.record.write import Writer

    duration, rate, pace = how
    contents = Contents()
    with Writer(output, head, force=force) as writer:
        try:
            record_into(writer, observation, duration_seconds=duration, rate_hertz=rate, stop=pace, seen=contents.add)
        except NoSuchProcess as error:
            if writer.count:
                error.fix = f"what was seen before is in {output}: {writer.count} snapshots"
            raise
        finally:
            if writer.count:
                writer.finish(observation.recording().wall_seconds)
            observation.close()
    return contents.lines(head)


def _tell(head: Recording, told: list[str], output: str, began: float, for_sharing: bool) -> None:
    """What is inside and what was taken out, to stderr."""
    from enginectl.cli import pipeline
    from enginectl.record.sharing import account_of

    pipeline.note(f"{output} is written ({time.monotonic() - began:.1f} s)")
    for line in told:
        print(f"  {line}", file=sys.stderr)
    print("taken out or never read:", file=sys.stderr)
    for line in account_of(head):
        print(f"  {line}", file=sys.stderr)
    if for_sharing:
        pipeline.note("the evidence is saved: it is safe to restart the engine now")
