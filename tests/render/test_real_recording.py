"""A recording of a real vLLM under load through every form that another viewer opens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.render.test_exports import CHROMIUM, decoded, opened_by_speedscope, speedscope_package, tracks_of
from tests.render.test_html import chromium

from enginectl.classify.timeline import timeline_of
from enginectl.diagnose.diagnose import diagnose
from enginectl.knowledge.loader import load
from enginectl.model.diagnosed import Diagnosis
from enginectl.model.observed import Recording
from enginectl.model.timeline import Timeline
from enginectl.read import read
from enginectl.render.html import render_html
from enginectl.render.perfetto import render_perfetto
from enginectl.render.speedscope import render_speedscope

__all__ = ["speedscope_package"]
FILE = Path(__file__).parents[2] / "fixtures" / "recordings" / "healthy-vllm-0.27.1-decoding.json"
KNOWLEDGE = load("")


@pytest.fixture(scope="module")
def seen() -> Recording:
    with FILE.open("rb") as stream:
        return read([(FILE.name, stream)])


@pytest.fixture(scope="module")
def diagnosis(seen: Recording) -> Diagnosis:
    return diagnose(seen, KNOWLEDGE)


@pytest.fixture(scope="module")
def timeline(seen: Recording) -> Timeline:
    return timeline_of(seen, KNOWLEDGE)


def test_the_diagnosis_is_the_one_of_that_moment(diagnosis: Diagnosis) -> None:
    assert diagnosis.verdict.finding in ("compute-bound", "busy")
    roles = {t.role for p in diagnosis.processes for t in p.threads}
    assert {"engine-loop", "ipc-in", "ipc-out", "frontend-loop", "worker-loop"} <= roles
    assert not [t.name for p in diagnosis.processes for t in p.threads if t.wait_point == "unknown" and t.frames]


def test_perfettos_own_classes_read_it(timeline: Timeline) -> None:
    tracks = " ".join(tracks_of(decoded(render_perfetto(timeline))).values())
    assert "engine-loop" in tracks and "worker-loop" in tracks


def test_speedscope_accepts_it(seen: Recording, timeline: Timeline, speedscope_package: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    schema = json.loads((speedscope_package / "dist/release/file-format-schema.json").read_text())
    jsonschema.validate(json.loads(render_speedscope(seen, timeline)), schema)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_speedscopes_page_opens_it(
    seen: Recording, timeline: Timeline, speedscope_package: Path, tmp_path: Path
) -> None:
    assert "worker-loop" in opened_by_speedscope(render_speedscope(seen, timeline), speedscope_package, tmp_path)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_browser_shows_the_report_without_a_complaint(
    diagnosis: Diagnosis, timeline: Timeline, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_html(diagnosis, timeline=timeline), encoding="utf-8")
    shown = chromium(page, "--dump-dom")
    assert "CONSOLE" not in shown.stderr
    assert "worker-loop" in shown.stdout
