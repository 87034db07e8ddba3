"""The pages of rules and wait points: what `explain` prints and `docs/rules`, `docs/waits` hold."""

from __future__ import annotations

from enginectl.knowledge.loader import Knowledge
from enginectl.knowledge.schema import Case, Condition, Rule, WaitPoint


def _condition(condition: Condition) -> str:
    where = f" of {condition.of}" if condition.of else ""
    at = f" at {condition.wait}" if condition.wait else ""
    value = str(condition.value).lower() if isinstance(condition.value, bool) else condition.value
    return f"`{condition.fact}`{where}{at} {condition.op} {value}"


def _case(case: Case, rule: Rule) -> list[str]:
    grade = case.confidence or rule.confidence
    lines = [f"- {case.state or rule.state}, {case.severity or rule.severity}, {grade} confidence, when all hold:"]
    lines += [f"  - {_condition(c)}" for c in case.when]
    if case.unless:
        lines.append("  and none of these:")
        lines += [f"  - {_condition(c)}" for c in case.unless]
    return lines


def rule_page(rule: Rule, knowledge: Knowledge) -> str:
    """One rule as Markdown with fixed headings."""
    advice = {row.id: row for rows in knowledge.advice.values() for row in rows}
    lines = [f"# {rule.id} {rule.finding}", "", f"State: {rule.state}. Severity: {rule.severity}.", ""]
    lines += ["## What it says", "", _without_fields(rule.summary), "", "## Why", "", rule.why, ""]
    lines += ["## Do not read it as", "", rule.not_to_be_read_as, "", "## False alarms", "", rule.false_alarms, ""]
    lines += ["## When it fires", ""]
    for case in rule.case:
        lines += _case(case, rule)
    if rule.needs:
        lines += ["", "Needs: " + ", ".join(rule.needs) + "."]
    known = [advice[i] for i in rule.advice if i in advice]
    if known:
        lines += ["", "## What to do", ""]
        lines += [
            f"{n}. {row.text}" + (f" Expect: {row.expect}." if row.expect else "") for n, row in enumerate(known, 1)
        ]
    return "\n".join(lines) + "\n"


def _without_fields(text: str) -> str:
    """The sentence with its measured fields shown as an ellipsis."""
    import re

    return re.sub(r"\{[^}]*\}", "…", text)


def wait_page(row: WaitPoint) -> str:
    """One wait point as Markdown."""
    lines = [f"# {row.id}", "", row.meaning, "", f"Class: `{row.wait_class}`."]
    if row.kind:
        lines.append(f"Kind: `{row.kind}`.")
    if row.role:
        lines.append(f"Thread role: `{row.role}`.")
    if row.process_role:
        lines.append(f"Process role: `{row.process_role}`.")
    if row.waits_for:
        lines.append(f"Waits for: `{row.waits_for}`" + (f" through {row.through}." if row.through else "."))
    lines += ["", "Frames, innermost first (`^` is the leaf):", ""]
    lines += [f"    {text}" for text in row.frames]
    if row.not_frames:
        lines += ["", "and none of:", "", *[f"    {text}" for text in row.not_frames]]
    if row.versions:
        lines += ["", f"Seen in versions: {row.versions}."]
    if row.note:
        lines += ["", row.note]
    return "\n".join(lines) + "\n"
