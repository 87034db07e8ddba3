"""What holds for every report, whatever the diagnosis contains."""

from __future__ import annotations

import json
import re
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.render.hostile import DIAGNOSES, HOSTILE

from enginectl.model.diagnosed import Diagnosis
from enginectl.render.html import render_html
from enginectl.render.json import render_json
from enginectl.render.markdown import render_markdown
from enginectl.render.text import render_text
from enginectl.render.words import clean

FEW = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),  # shrinking a whole diagnosis takes minutes
)
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def hidden(text: str) -> set[str]:
    return {character for character in text if unicodedata.category(character) in _HIDDEN} - {"\n"}


@FEW
@given(DIAGNOSES, st.integers(20, 140), st.booleans())
def test_text_fits_and_is_safe(diagnosis: Diagnosis, width: int, verbose: bool) -> None:
    report = render_text(diagnosis, width=width, verbose=verbose)
    assert not hidden(report)
    assert max(cell_len(line) for line in report.split("\n")) <= max(40, width)
    report.encode("utf-8")


@FEW
@given(DIAGNOSES)
def test_color_adds_only_escape_codes(diagnosis: Diagnosis) -> None:
    colored = re.sub(r"\x1b\[[0-9;]*m", "", render_text(diagnosis, color=True))
    assert [line.rstrip() for line in colored.split("\n")] == render_text(diagnosis).split("\n")


@FEW
@given(DIAGNOSES)
def test_json_is_valid_and_safe(diagnosis: Diagnosis) -> None:
    report = render_json(diagnosis)
    assert not hidden(report)
    assert json.loads(report, parse_constant=pytest.fail)["schema_version"] == 1
    assert report == render_json(diagnosis)


@FEW
@given(DIAGNOSES)
def test_markdown_is_safe(diagnosis: Diagnosis) -> None:
    report = render_markdown(diagnosis)
    assert not hidden(report)
    outside = re.sub(r"^[ ]*(`{3,}).*?^[ ]*\1$", "", report, flags=re.S | re.M)
    assert "<script" not in re.sub(r"`[^`\n]+`", "", re.sub(r"\\.", "", outside))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts = 0
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        if tag not in ("meta", "link", "br", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("rect", "path", "line", "polyline", "circle")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@FEW
@given(DIAGNOSES)
def test_html_is_well_formed_and_escaped(diagnosis: Diagnosis) -> None:
    report = render_html(diagnosis)
    assert not hidden(report)
    tags = Tags()
    tags.feed(report)
    assert tags.open == []
    assert tags.scripts == 1


@pytest.mark.parametrize("text", HOSTILE)
def test_clean_leaves_nothing_that_a_terminal_acts_on(text: str) -> None:
    assert not hidden(clean(text))
    assert "\n" not in clean(text)
