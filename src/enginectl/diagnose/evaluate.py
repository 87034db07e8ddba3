"""Rules against facts: each rule says fired, clear or undecided, with the evidence it compared."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import msgspec

from enginectl.diagnose.facts import FACTS, Value
from enginectl.diagnose.measures import Measures
from enginectl.knowledge.schema import Case, Condition, Rule
from enginectl.model.diagnosed import Evidence, Outcome, RuleVerdict

_OPERATORS: dict[str, Callable[[object, object], bool]] = {
    ">=": operator.ge,  # type: ignore[dict-item]
    "<=": operator.le,  # type: ignore[dict-item]
    ">": operator.gt,  # type: ignore[dict-item]
    "<": operator.lt,  # type: ignore[dict-item]
    "==": operator.eq,
    "!=": operator.ne,
    "in": lambda value, wanted: str(value) in str(wanted).split("|"),
}


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One condition, measured. `holds` is None when the fact could not be read."""

    condition: Condition
    value: Value
    holds: bool | None

    def evidence(self) -> Evidence:
        """The comparison as it is shown."""
        fact = FACTS[self.condition.fact]
        of, wait = self.condition.of, self.condition.wait
        words = fact.meaning.replace("{of}", who(of)).replace("{wait}", _place(wait))
        return Evidence(
            fact=self.condition.fact,
            of=of,
            value=self.value,
            unit=fact.unit,
            op=self.condition.op,
            threshold=self.condition.value,
            meaning=words,
            holds=self.holds,
        )


_WHO = {
    "": "any thread",
    "any": "any thread",
    "core": "a thread of the engine core or its workers",
    "engine": "an engine thread",
    "loop": "the thread that drives the model",
    "stray": "a thread outside the engine's work",
    "sink": "the last thread of the chain",
}


def who(of: str) -> str:
    """A thread selector in words."""
    if of.startswith("at:"):
        return "the thread in " + _place(of.removeprefix("at:"))
    return _WHO.get(of, of)


def _place(wait: str) -> str:
    """The wait selector in words: `kind:schedule|kv-allocate` becomes `schedule, kv-allocate`."""
    head, _, tail = wait.partition(":")
    names = ", ".join((tail or wait).split("|"))
    return f"a place of class {names}" if head == "class" else names


def check(measures: Measures, condition: Condition) -> Checked:
    """Measure one condition. Errors: KeyError for an unknown fact, which test_knowledge.py rules out."""
    fact = FACTS[condition.fact]
    value = fact.measure(measures, condition.of, condition.wait)
    if value is None:
        return Checked(condition=condition, value=None, holds=None)
    return Checked(condition=condition, value=value, holds=_OPERATORS[condition.op](value, condition.value))


def _case(measures: Measures, case: Case) -> tuple[Outcome, list[Checked]]:
    when = [check(measures, c) for c in case.when]
    unless = [check(measures, c) for c in case.unless]
    if any(c.holds is False for c in when) or any(c.holds for c in unless):
        return Outcome.CLEAR, when + [c for c in unless if c.holds]
    if all(c.holds for c in when) and all(c.holds is False for c in unless):
        return Outcome.FIRED, when
    return Outcome.UNDECIDED, when + unless


def evaluate(measures: Measures, rule: Rule) -> RuleVerdict:
    """One rule: the first case that fires, else the nearest undecided one, else clear.

    The first comparison of a case is its main one: a case in which that holds is nearer than one with fewer unknowns.
    """
    undecided: tuple[tuple[bool, int], int, list[Checked]] | None = None
    last: list[Checked] = []
    for number, case in enumerate(rule.case):
        outcome, checked = _case(measures, case)
        if outcome is Outcome.FIRED:
            return RuleVerdict(
                code=rule.id, outcome=outcome, case=number, evidence=tuple(c.evidence() for c in checked)
            )
        if outcome is Outcome.UNDECIDED:
            distance = (not checked[0].holds, sum(c.holds is None for c in checked))
            if undecided is None or distance < undecided[0]:
                undecided = (distance, number, checked)
        last = checked
    if undecided is None:
        return RuleVerdict(code=rule.id, outcome=Outcome.CLEAR, evidence=tuple(c.evidence() for c in last))
    _, number, checked = undecided
    missing = dict.fromkeys(FACTS[c.condition.fact].source for c in checked if c.holds is None)
    return RuleVerdict(
        code=rule.id,
        outcome=Outcome.UNDECIDED,
        case=number,
        evidence=tuple(c.evidence() for c in checked),
        missing=tuple(missing),
    )


def evaluate_all(measures: Measures, rules: Sequence[Rule]) -> tuple[RuleVerdict, ...]:
    """All rules, highest rank first."""
    ordered = sorted(rules, key=lambda r: (-r.rank, r.id))
    return tuple(evaluate(measures, rule) for rule in ordered)
