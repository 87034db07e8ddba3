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
    lines = [f"# {rule.id} {rule.finding}", "", f"State: {rule.state}. Severity: {rule.severity}.", ""]
    lines += ["## What it says", "", _without_fields(rule.summary), "", "## Why", "", rule.why, ""]
    lines += ["## Do not read it as", "", rule.not_to_be_read_as, "", "## False alarms", "", rule.false_alarms, ""]
    lines += ["## When it fires", ""]
    for case in rule.case:
        lines += _case(case, rule)
    if rule.needs:
        lines += ["", "Needs: " + ", ".join(rule.needs) + "."]
    known = [text for each in rule.advice for text in _advice(each, knowledge)]
    if known:
        lines += ["", "## What to do", ""]
        lines += [f"{n}. {text}" for n, text in enumerate(known, 1)]
    return "\n".join(lines) + "\n"


def _advice(advice_id: str, knowledge: Knowledge) -> list[str]:
    """The advice for any engine, and what an engine's own file says in its place."""
    found: list[str] = []
    for engine in sorted(knowledge.advice, key=lambda name: (name != "general", name)):
        for row in knowledge.advice[engine]:
            if row.id != advice_id:
                continue
            known = knowledge.engines.get(engine)
            limit = f"{known.watchdog_seconds:g}" if known and known.watchdog_seconds else ""
            text = row.text.replace("{watchdog_seconds}", limit).replace("{watchdog_left}", "")
            text += f" Expect: {row.expect}." if row.expect else ""
            found.append(text if engine == "general" else f"{engine}: {text}")
    return found


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
