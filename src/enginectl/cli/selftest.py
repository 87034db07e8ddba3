"""`enginectl selftest`: every fault of the bundled engine on live processes, expected against found."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Annotated, Any

import typer

from enginectl.cli.demo_process import Demo

LOOKS = 2
"""A verdict that is not the expected one may be looked at once more: the engineer at the console would."""


class Row:
    """One fault of the table and what came of it."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.name: str = raw["name"]
        self.accepted: tuple[str, ...] = tuple(raw["findings"])
        self.supported: bool = raw["supported"]
        self.reason: str = raw.get("reason") or ""
        self.found = ""
        self.confidence = ""
        self.seconds = 0.0

    @property
    def right(self) -> bool:
        """Whether the verdict was one of the accepted findings."""
        return self.found in self.accepted


def fault_table() -> list[Row]:
    """The bundled engine's own table. Errors: UsageError when the demo packages are missing."""
    from enginectl.errors import UsageError

    done = subprocess.run(
        [sys.executable, "-m", "engine_core", "--list-faults", "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise UsageError("the bundled engine needs more packages", fix="pip install 'enginectl[demo]'")
    return [Row(raw) for raw in json.loads(done.stdout)]


def diagnose_row(row: Row) -> None:
    """Run one fault and diagnose it like a user would: by pid, in a process of its own."""
    began = time.monotonic()
    demo = Demo(row.name)
    try:
        if not demo.wait_for("fault-active"):
            row.found = "(the fault did not take hold)"
            return
        for _ in range(LOOKS):
            argv = [sys.executable, "-m", "enginectl", "doctor", "--pid", str(demo.pid), "--json", "-q"]
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
            if done.returncode not in (0, 10, 20, 21, 22, 23) or not done.stdout:
                row.found = f"(exit {done.returncode}) {done.stderr.strip()[:60]}"
                continue
            verdict = json.loads(done.stdout)["verdict"]
            row.found, row.confidence = verdict["finding"], verdict["confidence"]
            break
    finally:
        demo.stop()
        row.seconds = time.monotonic() - began


def selftest(
    fault: Annotated[list[str] | None, typer.Option(help="Only this fault; may be repeated.")] = None,
    json_: Annotated[
        bool, typer.Option("--json", envvar="ENGINECTL_SELFTEST_JSON", help="JSON instead of a table.")
    ] = False,
) -> None:
    """Run every fault of the bundled engine on live processes: expected, found, confidence, seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from enginectl.cli import pipeline
    from enginectl.errors import UsageError

    rows = [r for r in fault_table() if not fault or r.name in fault]
    if not rows:
        raise UsageError(f"no fault is called {', '.join(fault or [])}", fix="enginectl run-demo --list-faults")
    columns = (TextColumn("{task.description:24}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("selftest", total=len(rows))
        for row in rows:
            progress.update(task, description=row.name)
            if row.supported:
                diagnose_row(row)
                mark = "right" if row.right else "WRONG"
                progress.console.print(f"{mark}  {row.name}: {row.found} ({row.seconds:.0f} s)", highlight=False)
            progress.advance(task)
    pipeline.write(_json(rows) if json_ else _table(rows), "")
    raise typer.Exit(0 if all(r.right or not r.supported for r in rows) else 1)


def _json(rows: list[Row]) -> str:
    return json.dumps([{**vars(r), "right": r.right} for r in rows], indent=1)


def _table(rows: list[Row]) -> str:
    lines = [f"{'FAULT':22} {'EXPECTED':26} {'FOUND':26} {'CONF.':7} SEC"]
    for row in rows:
        expected = " | ".join(row.accepted)
        if not row.supported:
            lines.append(f"{row.name:22} {expected:26} not possible here: {row.reason}")
            continue
        found = row.found if row.right else f"{row.found}  <- WRONG"
        lines.append(f"{row.name:22} {expected:26} {found:26} {row.confidence:7} {row.seconds:3.0f}")
    wrong = sum(r.supported and not r.right for r in rows)
    lines.append(f"{len(rows)} faults, {wrong} wrong, {sum(not r.supported for r in rows)} not possible here.")
    return "\n".join(lines)
