"""Regenerates docs/rules, docs/waits and docs/cli.md from the knowledge files and the command line.

`--check` writes nothing and exits 1 when a page is not current.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from enginectl.knowledge.loader import load
from enginectl.knowledge.pages import rule_page, wait_page
from enginectl.knowledge.schema import WAIT_CLASSES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CLASS_NOTES = {
    "idle": "Nothing to do: the resting place of this thread.",
    "peer": "Another thread or process of the engine must act first.",
    "lock": "A lock is held by somebody else.",
    "gil": "The thread could run Python, but another thread holds the interpreter lock.",
    "device": "The accelerator must finish something.",
    "collective": "Other ranks must enter or finish the same collective operation.",
    "ipc-send": "A message cannot leave: the reader does not take it.",
    "io": "A file, socket or pipe.",
    "timer": "A sleep that ends by itself.",
    "cpu": "Not waiting: running, and with what.",
    "startup": "Part of the way to being ready.",
    "shutdown": "Part of the way to the end.",
    "unknown": "No row of the knowledge files fits: shown as it is, never guessed.",
}


def rule_pages() -> dict[Path, str]:
    """One page per rule, and their index."""
    knowledge = load()
    rules = sorted(knowledge.rules.values(), key=lambda r: r.id)
    pages = {DOCS / "rules" / f"{r.id}-{r.finding}.md": rule_page(r, knowledge) for r in rules}
    lines = ["# Findings", "", "| code | finding | state | severity |", "| --- | --- | --- | --- |"]
    lines += [f"| [{r.id}]({r.id}-{r.finding}.md) | `{r.finding}` | {r.state} | {r.severity} |" for r in rules]
    pages[DOCS / "rules" / "README.md"] = "\n".join(lines) + "\n"
    return pages


def wait_pages() -> dict[Path, str]:
    """One page per file of wait points, and one on the wait classes."""
    pages: dict[Path, str] = {}
    for name, rows in sorted(load().waits.items()):
        parts = [f"# Wait points: {name}\n"]
        parts += [wait_page(row).replace("# ", "## ", 1) for row in sorted(rows, key=lambda r: r.id)]
        pages[DOCS / "waits" / f"{name}.md"] = "\n".join(parts)
    lines = ["# Wait classes", "", "Every place where a thread can stand belongs to one of these.", ""]
    lines += [f"- `{name}`: {CLASS_NOTES[name]}" for name in WAIT_CLASSES]
    lines += ["", "By engine: " + ", ".join(f"[{n}]({n}.md)" for n in sorted(load().waits)) + "."]
    pages[DOCS / "waits" / "README.md"] = "\n".join(lines) + "\n"
    return pages


def _help(*argv: str) -> str:
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "enginectl", *argv], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.replace("python -m enginectl", "enginectl").rstrip()


def verbs() -> list[str]:
    """All verbs of the command line."""
    from enginectl.cli.app import app

    return [command.name for command in app.registered_commands if command.name]


def cli_page() -> dict[Path, str]:
    """`--help` of every verb."""
    parts = ["# Command line", "", "```", _help("--help"), "```"]
    for verb in verbs():
        parts += ["", f"## enginectl {verb}", "", "```", _help(verb, "--help"), "```"]
    parts += [
        "",
        "Every option has a variable: `ENGINECTL_` + verb + option, for example `ENGINECTL_DOCTOR_DURATION=5`.",
        "",
        "## Exit codes",
        "",
        "| code | means |",
        "| --- | --- |",
        "| 0 | healthy, idle, starting, or nothing at or above `--fail-on` |",
        "| 1 | enginectl itself failed: a bug (`-v` shows where) |",
        "| 2 | the command line cannot be carried out |",
        "| 10 | a finding at or above `--fail-on` (default `warning`) |",
        "| 20 | no such process, or it exited while being observed |",
        "| 21 | not a process that enginectl can read |",
        "| 22 | permission: the one cause and the one fix are printed |",
        "| 23 | evidence insufficient: the verdict is undecided |",
    ]
    return {DOCS / "cli.md": "\n".join(parts) + "\n"}


def main() -> int:
    """Write all pages, or with `--check` name those that are not current."""
    pages = {**rule_pages(), **wait_pages(), **cli_page()}
    known = {p for folder in ("rules", "waits") for p in (DOCS / folder).glob("*.md")}
    stale = [p for p, text in pages.items() if not p.exists() or p.read_text() != text]
    stray = sorted(known - set(pages))
    if "--check" in sys.argv[1:]:
        for path in [*stale, *stray]:
            print(f"not current: {path.relative_to(ROOT)} (make docs)")
        return 1 if stale or stray else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages[path])
    for path in stray:
        path.unlink()
    print(f"{len(stale)} pages written, {len(stray)} removed, {len(pages)} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
