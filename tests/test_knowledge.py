"""Every knowledge row: decodes, is complete, is told apart from all others, and does what its examples say."""

from __future__ import annotations

import re
from collections import Counter
from importlib import resources
from pathlib import Path

import msgspec
import pytest

from enginectl.classify.match import FramePattern
from enginectl.classify.matchers import matcher_for
from enginectl.diagnose.diagnose import diagnose
from enginectl.diagnose.facts import FACTS
from enginectl.knowledge.loader import load
from enginectl.knowledge.schema import (
    CONFIDENCES,
    PROCESS_ROLES,
    SEVERITIES,
    STATES,
    THREAD_ROLES,
    WAIT_CLASSES,
    Condition,
    Rule,
    WaitPoint,
)
from enginectl.model.observed import Recording
from enginectl.observe.stacks import _to_samples

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
KNOWLEDGE = load()
WAITS = [(stem, row) for stem, rows in KNOWLEDGE.waits.items() for row in rows]
RULES = sorted(KNOWLEDGE.rules.values(), key=lambda r: r.id)
RECORDINGS = FIXTURES / "recordings"


def _recording(name: str) -> Recording:
    return msgspec.json.decode((RECORDINGS / name).read_bytes(), type=Recording)


def test_wait_ids_are_unique_and_begin_with_their_file() -> None:
    doubled = [i for i, n in Counter(row.id for _, row in WAITS).items() if n > 1]
    assert doubled == []
    assert [row.id for stem, row in WAITS if not row.id.startswith(stem + ".")] == []


@pytest.mark.parametrize(("stem", "row"), WAITS, ids=[row.id for _, row in WAITS])
def test_wait_point(stem: str, row: WaitPoint) -> None:
    assert row.wait_class in WAIT_CLASSES
    assert row.role is None or row.role in THREAD_ROLES
    assert row.process_role is None or row.process_role in PROCESS_ROLES
    assert row.meaning.endswith(".") and len(row.meaning) < 160
    for text in (*row.frames, *row.not_frames):
        FramePattern(text)
    if row.waits_for:
        process_role, _, thread_role = row.waits_for.rpartition(":")
        assert thread_role in THREAD_ROLES and (not process_role or process_role in PROCESS_ROLES)
    assert bool(row.waits_for) <= bool(row.through), "a wait for somebody names its channel"


EXAMPLES = [(row, FIXTURES / row.example) for _, row in WAITS if row.example]


@pytest.mark.parametrize(("row", "path"), EXAMPLES, ids=[row.id for row, _ in EXAMPLES])
def test_wait_point_matches_its_dump_and_no_row_ties_with_it(row: WaitPoint, path: Path) -> None:
    threads = _to_samples(path.read_bytes())
    engine = row.id.partition(".")[0]
    matcher = matcher_for(KNOWLEDGE, engine if engine in KNOWLEDGE.engines else None)
    state = row.os_states.split()[0] if row.os_states else None
    hits = []
    for thread in threads:
        found = matcher.match(thread.frames or (), role=row.process_role, os_state=state)
        if found and found.row.id == row.id:
            hits.append(thread)
            rivals = matcher.rivals(thread.frames or (), role=row.process_role, os_state=state)
            assert rivals == [row.id]
    assert hits, f"no thread of {path.name} stands at {row.id}"


def test_rule_files_are_named_for_their_rule() -> None:
    folder = resources.files("enginectl.knowledge") / "rules"
    names = {f.name for f in folder.iterdir() if f.name.endswith(".toml")}
    assert names == {f"{r.id}-{r.finding}.toml" for r in RULES}


def _conditions(rule: Rule) -> list[Condition]:
    return [c for case in rule.case for c in (*case.when, *case.unless)]


KINDS = {row.kind for _, row in WAITS if row.kind}


@pytest.mark.parametrize("rule", RULES, ids=[r.id for r in RULES])
def test_rule(rule: Rule) -> None:
    assert rule.severity in SEVERITIES and rule.confidence in CONFIDENCES
    assert set(rule.state.split("/")) <= set(STATES)
    assert rule.why and rule.false_alarms and rule.not_to_be_read_as and rule.case
    for case in rule.case:
        assert case.state in ("", *STATES) and case.severity in ("", *SEVERITIES)
        assert case.confidence in ("", *CONFIDENCES)
    for condition in _conditions(rule):
        assert condition.fact in FACTS
        if condition.wait.startswith("class:"):
            assert set(condition.wait[6:].split("|")) <= set(WAIT_CLASSES)
        elif condition.wait.startswith("kind:"):
            assert set(condition.wait[5:].split("|")) <= KINDS, "a kind that no wait point has"
    for text in (rule.summary, *(c.summary for c in rule.case)):
        for field in re.findall(r"\{([a-z_.]+)", text):
            assert field in FACTS or field.startswith("culprit"), field
    advice = {row.id for rows in KNOWLEDGE.advice.values() for row in rows}
    assert [a for a in rule.advice if a not in advice] == []


def test_ranks_are_unique() -> None:
    assert [n for n, count in Counter(r.rank for r in RULES).items() if count > 1] == []


FIRES = [(r, name) for r in RULES for name in r.examples.fires]
CLEAR = [(r, name) for r in RULES for name in r.examples.clear]


@pytest.mark.parametrize(("rule", "name"), FIRES, ids=[f"{r.id}-{n}" for r, n in FIRES])
def test_rule_fires_on_its_example(rule: Rule, name: str) -> None:
    diagnosis = diagnose(_recording(name), KNOWLEDGE)
    assert diagnosis.verdict.code == rule.id
    finding = diagnosis.findings[0]
    assert finding.evidence and all(e.holds for e in finding.evidence)


@pytest.mark.parametrize(("rule", "name"), CLEAR, ids=[f"{r.id}-{n}" for r, n in CLEAR])
def test_rule_is_clear_on_its_counterexample(rule: Rule, name: str) -> None:
    assert rule.id not in {f.code for f in diagnose(_recording(name), KNOWLEDGE).findings}


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("healthy-*.json")), ids=lambda p: p.stem)
def test_healthy_recordings_raise_nothing(path: Path) -> None:
    found = diagnose(_recording(path.name), KNOWLEDGE).findings
    assert [f.code for f in found if f.severity != "info"] == []


def test_every_recording_is_used() -> None:
    used = {name for _, name in (*FIRES, *CLEAR)}
    assert [p.name for p in RECORDINGS.glob("EC*.json") if p.name not in used] == []
