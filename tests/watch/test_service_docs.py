"""What the pages about `watch` show is what the program takes."""

from __future__ import annotations

import re
from pathlib import Path

import typer.main

from enginectl.cli.app import app
from enginectl.watch.exporter import Board
from enginectl.watch.triggers import load_plan

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "containers.md", DOCS / "howto" / "watch-as-a-service.md", DOCS / "enginectl-watch.service")


def options() -> set[str]:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {option for command in commands.values() for each in command.params for option in each.opts}


def test_the_triggers_shown_are_valid(tmp_path: Path) -> None:
    shown = re.findall(r"```toml\n(.*?)```", PAGES[1].read_text(), re.DOTALL)
    assert shown
    for number, text in enumerate(shown):
        path = tmp_path / f"{number}.toml"
        path.write_text(text)
        assert load_plan(str(path)).trigger


def test_the_options_shown_exist() -> None:
    known = options()
    for page in PAGES:
        for line in re.findall(r"(?:enginectl|IMAGE) (?:watch|record|doctor|ps)\b(?:[^\n`]|\\\n)*", page.read_text()):
            mine = line.split(" | ")[0]
            assert set(re.findall(r"(?<=\s)--[a-z-]+", mine)) <= known, line


def test_the_series_shown_are_those_that_are_served() -> None:
    shown = set(re.findall(r"`(enginectl_[a-z_]+)", PAGES[1].read_text()))
    served = {metric.name for metric in Board().collect()}
    assert {name.removesuffix("_total") for name in shown} >= served
