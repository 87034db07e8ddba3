"""`enginectl watch`: continuous observation with triggers."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer


def watch(
    pid: Annotated[int | None, typer.Option(help="Any process of the engine; found again after a restart.")] = None,
    name: Annotated[str, typer.Option(metavar="REGEX", help="The engine whose title or command line matches.")] = "",
    triggers: Annotated[str, typer.Option(metavar="FILE", help="TOML with triggers; a packaged set otherwise.")] = "",
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 5.0,
    window: Annotated[float, typer.Option(min=1, help="Seconds that a verdict looks back.")] = 30.0,
    keep: Annotated[float, typer.Option(min=1, help="Seconds kept in memory, for what was before a trigger.")] = 300.0,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where triggers put recordings.", file_okay=False)
    ] = Path("."),
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics there.")] = "",
    duration: Annotated[float, typer.Option(min=0, help="Seconds to watch; 0: until ended.")] = 0.0,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds any single read may take.")] = 10.0,
    url: Annotated[str, typer.Option(metavar="URL", help="The engine's /metrics; found by itself when left out.")] = "",
    token: Annotated[str, typer.Option(help="Bearer token for --url.")] = "",
    no_gpu: Annotated[bool, typer.Option("--no-gpu", help="Do not ask NVML.")] = False,
    knowledge: Annotated[str, typer.Option(metavar="DIR", help="More wait points, rules and engines.")] = "",
) -> None:
    """Watch an engine: verdict changes as lines, triggers that record and tell, metrics for Prometheus."""
    from enginectl.cli import pipeline
    from enginectl.errors import UsageError
    from enginectl.observe.record import Settings
    from enginectl.record.stop import stop_by_signal
    from enginectl.watch import engine, exporter, judge, limits, loop, recorder, target
    from enginectl.watch.triggers import load_plan

    plan = load_plan(triggers)
    rows = pipeline.knowledge_of(knowledge)
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", fix=f"mkdir -p {folder}")
    settings = Settings(timeout_seconds=timeout, url=url, token=token, gpu=not no_gpu)
    observe = functools.partial(pipeline.observation, settings=settings, knowledge=rows)
    watched = engine.Watched(target.Finder(pipeline.Recogniser(rows), pid, name), observe, max(keep, window))
    board = exporter.Board()
    budget = limits.DiskBudget(folder, plan.limits.disk_mebibytes * (1 << 20))
    parts = loop.Loop(
        watched, rows, judge.Judge(plan), recorder.Recorder(budget), board, functools.partial(_say, as_json=json_)
    )
    times = loop.Times(interval_seconds=interval, window_seconds=window, duration_seconds=duration)
    with stop_by_signal() as stop, contextlib.ExitStack() as stack:
        if listen:
            stack.callback(exporter.serve(board, listen))
        parts.run(times, stop)


def _say(kind: str, fields: dict[str, str], *, as_json: bool) -> None:
    """One line on stdout."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    known = {key: value for key, value in fields.items() if value}
    if as_json:
        line = json.dumps({"at": at, "line": kind, **known})
    else:
        line = f"{at} {kind}: " + ", ".join(f"{key} {value}" for key, value in known.items())
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
