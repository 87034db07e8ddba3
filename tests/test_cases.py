"""Saved evidence of many kinds -> what may be said of it. Each case is one kind of paste, reduced and made up."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path
from typing import Any

import pytest

from enginectl.diagnose.diagnose import diagnose
from enginectl.knowledge.loader import load
from enginectl.model.diagnosed import Diagnosis
from enginectl.read import read, read_facts

CASES = Path(__file__).parents[1] / "fixtures" / "cases"


def diagnosis_of(folder: Path) -> Diagnosis:
    with contextlib.ExitStack() as stack:
        files = [(p.name, stack.enter_context(p.open("rb"))) for p in sorted(folder.glob("*.txt"))]
        facts = folder / "facts.toml"
        stated = read_facts(facts.name, stack.enter_context(facts.open("rb"))) if facts.exists() else None
        return diagnose(read(files, facts=stated), load())


@pytest.mark.parametrize("folder", sorted(CASES.iterdir()), ids=lambda p: p.name)
def test_case(folder: Path) -> None:
    expected: dict[str, Any] = tomllib.loads((folder / "case.toml").read_text())
    verdict = diagnosis_of(folder).verdict
    if expected["outcome"] != "any":
        assert verdict.outcome == expected["outcome"], verdict
    if "finding" in expected:
        assert verdict.finding == expected["finding"], verdict
    if verdict.outcome == "decided":
        assert verdict.finding not in expected.get("not_findings", [])
    else:
        assert len(verdict.candidates) <= 4 and verdict.needs
        assert set(expected.get("candidates", [])) <= set(verdict.candidates), verdict
    if "culprit_pid" in expected:
        assert verdict.culprit is not None and verdict.culprit.pid == expected["culprit_pid"]
    if "culprit_wait_class" in expected:
        assert verdict.culprit is not None and verdict.culprit.wait_class == expected["culprit_wait_class"]
