"""`enginectl top`: the live view of one engine, or the replay of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from enginectl.knowledge.loader import Knowledge
    from enginectl.observe.record import Settings
    from enginectl.top.moment import Feed, Sources

READ_SECONDS = 5.0
"""No single read of the view takes longer."""


def top(
    pid: Annotated[int | None, typer.Option(help="Any process of the engine: its whole tree is shown.")] = None,
    name: Annotated[str, typer.Option(metavar="REGEX", help="The engine whose title or command line matches.")] = "",
    from_: Annotated[
        list[Path] | None, typer.Option("--from", metavar="FILE", help="Replay a recording or saved dumps.")
    ] = None,
    only_pid: Annotated[bool, typer.Option("--only-pid", help="Look at this one process only.")] = False,
    url: Annotated[str, typer.Option(metavar="URL", help="The engine's /metrics; found by itself when left out.")] = "",
    token: Annotated[str, typer.Option(help="Bearer token for --url.")] = "",
    no_gpu: Annotated[bool, typer.Option("--no-gpu", help="Do not ask NVML.")] = False,
    knowledge: Annotated[str, typer.Option(metavar="DIR", help="More wait points, rules and engines.")] = "",
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours.")] = False,
) -> None:
    """Watch one engine live: verdict, processes, threads, devices. It only looks."""
    from enginectl.cli import pipeline
    from enginectl.observe.record import Settings

    _require_terminal()
    rows = pipeline.knowledge_of(knowledge)
    if from_:
        sources = _replay(from_, rows)
        _run(sources, 0, pipeline.use_color(no_color))
        return
    settings = Settings(timeout_seconds=READ_SECONDS, url=url, token=token, gpu=not no_gpu, only_pid=only_pid)
    _run(_live(settings, rows, name), _target(pid, name, rows), pipeline.use_color(no_color))


def _require_terminal() -> None:
    """UsageError when there is nothing to draw on, or nothing to draw with."""
    import importlib.util
    import sys

    from enginectl.errors import UsageError

    if importlib.util.find_spec("textual") is None:
        raise UsageError("enginectl top needs textual", fix="pip install 'enginectl[top]'")
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("enginectl top needs a terminal", fix="enginectl doctor for one report, watch for a service")


def _target(pid: int | None, name: str, rows: Knowledge) -> int | None:
    """The pid to watch; None when there are several engines to choose from.

    Errors: NoSuchProcess, NotAnEngine, and UsageError for a wrong --name.
    """
    import re

    from enginectl.cli import pipeline
    from enginectl.cli.top_target import choices
    from enginectl.errors import UsageError
    from enginectl.observe import target

    if pid is not None:
        return target.require(pid, pipeline.Recogniser(rows)).pid
    try:
        re.compile(name)
    except re.error as error:
        raise UsageError(f"--name {name}: {error}") from error
    return None if len(choices(rows, name)) > 1 else pipeline.choose_pid(rows, name)


def _live(settings: Settings, rows: Knowledge, name: str) -> Sources:
    from enginectl.cli.top_live import LiveFeed
    from enginectl.cli.top_target import choices
    from enginectl.top.moment import Sources

    return Sources(
        choices=lambda: choices(rows, name),
        attach=lambda pid: LiveFeed(pid, settings, rows, name),
        page=lambda wait_point: _page(rows, wait_point),
        record=_record,
    )


def _replay(files: list[Path], rows: Knowledge) -> Sources:
    """Errors: UsageError for a file that is not there, UnreadableInput for one without evidence."""
    import contextlib

    from enginectl.cli.top_replay import ReplayFeed
    from enginectl.errors import UnreadableInput, UsageError
    from enginectl.read import read
    from enginectl.top.moment import Sources

    with contextlib.ExitStack() as stack:
        try:
            recording = read([(path.name, stack.enter_context(path.open("rb"))) for path in files])
        except OSError as error:
            raise UsageError(f"cannot read {error.filename}: {error.strerror}") from error
    if not recording.snapshots:
        raise UnreadableInput(f"{files[0]} holds no snapshot to show")
    return Sources(
        choices=tuple,
        attach=lambda _: ReplayFeed(recording, rows),
        page=lambda wait_point: _page(rows, wait_point),
    )


def _page(rows: Knowledge, wait_point: str) -> str:
    from enginectl.knowledge.pages import wait_page

    row = rows.wait(wait_point)
    return wait_page(row) if row else ""


def _record(feed: Feed) -> str:
    """Save the last minutes next to where the tool was started. Errors: UsageError when it cannot be written."""
    from datetime import UTC, datetime

    from enginectl.cli.top_live import LiveFeed
    from enginectl.record.write import Writer

    assert isinstance(feed, LiveFeed)
    recording = feed.kept()
    path = Path(f"enginectl-{recording.target_pid}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.ecrec")
    with Writer(path, recording) as writer:
        for snapshot in recording.snapshots:
            writer.add(snapshot)
        writer.finish(recording.wall_seconds)
    return f"saved {writer.count} snapshots, {recording.wall_seconds:.0f} s, to {path}"


def _run(sources: Sources, pid: int | None, color: bool) -> None:
    import os

    if not color:
        os.environ["NO_COLOR"] = "1"
    from enginectl.top.app import Top

    app = Top(sources, pid=pid)
    app.run()
    if app.return_code:
        raise typer.Exit(app.return_code)
