"""`enginectl doctor`: one diagnosis, live or from saved evidence."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from enginectl.cli.export import ExportFormat

if TYPE_CHECKING:
    from enginectl.knowledge.loader import Knowledge
    from enginectl.model.diagnosed import Diagnosis
    from enginectl.model.observed import Recording
    from enginectl.observe.record import Settings


class Format(enum.StrEnum):
    """Forms of a report."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"
    MD = "md"


class FailOn(enum.StrEnum):
    """From which severity on the exit code is 10."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"
    NEVER = "never"


def doctor(
    pid: Annotated[int | None, typer.Option(help="Any process of the engine: its whole tree is diagnosed.")] = None,
    name: Annotated[str, typer.Option(metavar="REGEX", help="The engine whose title or command line matches.")] = "",
    from_: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            envvar="ENGINECTL_DOCTOR_FROM",
            metavar="FILE",
            help="Saved dumps or recordings, in time order; - is stdin.",
        ),
    ] = None,
    facts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML with facts that a dump cannot carry.")
    ] = None,
    same_process: Annotated[
        bool, typer.Option("--same-process", help="Dumps without a pid are samples of one process, not peers.")
    ] = False,
    only_pid: Annotated[bool, typer.Option("--only-pid", help="Look at this one process only.")] = False,
    json_: Annotated[
        bool, typer.Option("--json", envvar="ENGINECTL_DOCTOR_JSON", help="The same as --format json.")
    ] = False,
    format_: Annotated[
        Format, typer.Option("--format", envvar="ENGINECTL_DOCTOR_FORMAT", help="Form of the report.")
    ] = Format.TEXT,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Write the report to a file.")] = "",
    export: Annotated[
        tuple[ExportFormat, str] | None,
        typer.Option(metavar="FORMAT FILE", help="Write it for another viewer too: perfetto, speedscope or folded."),
    ] = None,
    duration: Annotated[float, typer.Option(min=0, help="Seconds to observe.")] = 2.0,
    samples: Annotated[int, typer.Option(min=1, max=1000, help="Stack samples within that time.")] = 5,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds any single read may take.")] = 10.0,
    native: Annotated[bool, typer.Option("--native", help="Read native frames too (slower).")] = False,
    url: Annotated[str, typer.Option(metavar="URL", help="The engine's /metrics; found by itself when left out.")] = "",
    token: Annotated[str, typer.Option(envvar="ENGINECTL_TOKEN", help="Bearer token for --url.")] = "",
    no_gpu: Annotated[bool, typer.Option("--no-gpu", help="Do not ask NVML.")] = False,
    no_confirm: Annotated[
        bool, typer.Option("--no-confirm", help="Do not look 10 s longer when it seems hung.")
    ] = False,
    knowledge: Annotated[str, typer.Option(metavar="DIR", help="More wait points, rules and engines.")] = "",
    fail_on: Annotated[FailOn, typer.Option(help="Exit with 10 from this severity on.")] = FailOn.WARNING,
    redact: Annotated[bool, typer.Option("--redact/--no-redact", help="Take secrets out of command lines.")] = True,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show helpers, all stacks and all rules.")] = False,
) -> None:
    """Diagnose one engine: what its threads do, who waits for whom, what holds it back."""
    from enginectl.cli import pipeline
    from enginectl.errors import UsageError

    rows = pipeline.knowledge_of(knowledge)
    if sum((pid is not None, bool(name), bool(from_))) > 1:
        raise UsageError("--pid, --name and --from exclude each other")
    if from_:
        recording = _read(from_, facts, same_process)
        diagnosis = pipeline.diagnosed(recording, rows)
    else:
        from enginectl.observe.record import Settings

        settings = Settings(
            duration_seconds=duration,
            samples=samples,
            timeout_seconds=timeout,
            native=native,
            url=url,
            token=token,
            gpu=not no_gpu,
            only_pid=only_pid,
            redact=redact,
        )
        target = pid if pid is not None else pipeline.choose_pid(rows, name)
        recording, diagnosis = _observe(target, settings, rows, confirm=not no_confirm, quiet=quiet)
    if export:
        from enginectl.cli.export import export as write_export

        write_export(recording, rows, *export)
    form = Format.JSON if json_ else format_
    pipeline.write(
        _render(diagnosis, recording, rows, form, pipeline.use_color(no_color) and not output, verbose), output
    )
    raise typer.Exit(pipeline.exit_code(diagnosis, fail_on.value))


def _observe(
    pid: int, settings: Settings, knowledge: Knowledge, *, confirm: bool, quiet: bool
) -> tuple[Recording, Diagnosis]:
    """Observe, diagnose, and look longer when it seems hung."""
    from enginectl.cli import pipeline

    observation = pipeline.observation(pid, settings, knowledge)
    observation.extend(settings.duration_seconds, settings.samples)
    recording = observation.recording()
    diagnosis = pipeline.diagnosed(recording, knowledge)
    if confirm and settings.samples > 1 and pipeline.needs_more_samples(diagnosis):
        pipeline.note("close call; taking some more samples", quiet=quiet)
        observation.extend(pipeline.MORE_SECONDS, pipeline.MORE_SAMPLES)
        recording = observation.recording()
        diagnosis = pipeline.diagnosed(recording, knowledge)
    elif confirm and settings.samples > 1 and pipeline.needs_confirmation(diagnosis):
        first = f"looks like {diagnosis.verdict.finding}" if diagnosis.verdict.outcome == "decided" else "not clear yet"
        pipeline.note(f"{first}; looking {pipeline.CONFIRM_SECONDS:.0f} s longer to be sure", quiet=quiet)
        observation.extend(pipeline.CONFIRM_SECONDS, pipeline.CONFIRM_SAMPLES)
        recording = observation.recording()
        diagnosis = pipeline.diagnosed(recording, knowledge)
        if not settings.native and pipeline.needs_native(diagnosis):
            observation.look_below()
            recording = observation.recording()
            diagnosis = pipeline.diagnosed(recording, knowledge)
    observation.close()
    _require_engine(pid, diagnosis, knowledge)
    return recording, diagnosis


def _require_engine(pid: int, diagnosis: Diagnosis, knowledge: Knowledge) -> None:
    """NotAnEngine when stacks were read and neither names nor stacks show an engine that is known."""
    from enginectl.errors import NotAnEngine

    if any(p.engine for p in diagnosis.processes) or diagnosis.verdict.finding in ("attach-denied", "process-stopped"):
        return
    known = ", ".join(sorted(knowledge.engines))
    raise NotAnEngine(f"pid {pid} is a Python process, but no engine that is known here ({known})", fix="enginectl ps")


def _read(files: list[Path], facts: Path | None, same_process: bool) -> Recording:
    """Saved evidence as a recording. Errors: UsageError for a file that is not there."""
    import contextlib
    import sys

    from enginectl.errors import UsageError
    from enginectl.read import read, read_facts

    with contextlib.ExitStack() as stack:

        def opened(path: Path) -> tuple[str, BinaryIO]:
            if str(path) == "-":
                return "stdin", sys.stdin.buffer
            try:
                return path.name, stack.enter_context(path.open("rb"))
            except OSError as error:
                raise UsageError(f"cannot read {path}: {error.strerror}") from error

        stated = read_facts(*opened(facts)) if facts else None
        return read([opened(path) for path in files], facts=stated, same_process=same_process)


def _render(
    diagnosis: Diagnosis, recording: Recording, knowledge: Knowledge, form: Format, color: bool, verbose: bool
) -> str:
    from enginectl.cli import pipeline

    if form is Format.JSON:
        from enginectl.render.json import render_json

        return render_json(diagnosis)
    if form is Format.MD:
        from enginectl.render.markdown import render_markdown

        return render_markdown(diagnosis)
    if form is Format.HTML:
        from enginectl.classify.timeline import timeline_of
        from enginectl.render.html import render_html

        return render_html(diagnosis, timeline=timeline_of(recording, knowledge))
    from enginectl.render.text import render_text

    return render_text(diagnosis, width=pipeline.terminal_width(), color=color, verbose=verbose)
