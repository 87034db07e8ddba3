"""The report for a terminal: the verdict first, then what supports it, then what to do."""

from __future__ import annotations

import io
from collections.abc import Iterable

from enginectl.model.diagnosed import AdviceLine, Diagnosis, Evidence, Finding
from enginectl.render import text_facts, text_threads, words
from enginectl.render.chain import find_process
from enginectl.render.lines import Line, command, paragraph, plain, width_of
from enginectl.render.next_evidence import candidates, next_evidence

MIN_WIDTH = 40
_STATE_STYLES = {
    "idle": "bold green", "busy": "bold green", "slow": "bold yellow", "starting": "bold yellow",
    "hung": "bold red", "crashed": "bold red",
}  # fmt: skip
_SEVERITY_STYLES = {"critical": "bold red", "warning": "bold yellow"}


def render_text(diagnosis: Diagnosis, *, width: int = 80, color: bool = False, verbose: bool = False) -> str:
    """The whole report as lines of at most `width` columns (never fewer than 40), ending in a newline.

    Shape: one diagnosis -> text; without `color` it holds no escape code. Errors: none.
    """
    width = max(MIN_WIDTH, width)
    lines = header_lines(diagnosis, width)
    for title, body in _sections(diagnosis, width, verbose):
        if body:
            lines.extend([(), ((title, "bold"),), *body])
    lines.extend([(), *text_facts.footer_lines(diagnosis, width)])
    return _colored(lines, width) if color else "".join(plain(line) + "\n" for line in lines)


def _sections(diagnosis: Diagnosis, width: int, verbose: bool) -> Iterable[tuple[str, list[Line]]]:
    decided = diagnosis.verdict.outcome == "decided"
    yield "Could be", [line for text in candidates(diagnosis) for line in _bullet(text, width)]
    if not decided:
        yield "Could not be read", text_facts.gap_lines(diagnosis, width)
    yield "Next evidence, to tell them apart", next_lines(diagnosis, width)
    yield "Evidence", evidence_lines(evidence_of(diagnosis), width, verbose=verbose)
    yield "Chain (who waits for whom)", text_threads.chain_lines(diagnosis, width)
    yield "Threads", text_threads.thread_lines(diagnosis, width, verbose=verbose)
    yield "Ranks that stand alike", [line for text in diagnosis.buckets for line in _bullet(words.clean(text), width)]
    yield "Stack, innermost frame first", text_threads.stack_lines(diagnosis, width, verbose=verbose)
    yield "What to do", advice_lines(diagnosis, width)
    yield "Other findings", other_lines(diagnosis, width)
    yield "GPUs", text_facts.gpu_lines(diagnosis, width)
    yield "Engine counters", text_facts.counter_lines(diagnosis, width, verbose=verbose)
    yield "Notes", [line for text in diagnosis.notes for line in _bullet(words.clean(text), width)]
    if decided:
        yield "Could not be read", text_facts.gap_lines(diagnosis, width)
    yield "Rules left open", open_rule_lines(diagnosis, width) if verbose else []


def header_lines(diagnosis: Diagnosis, width: int) -> list[Line]:
    """State and sentence, then finding, code and confidence, then where to look and at what was looked."""
    verdict = diagnosis.verdict
    word = words.headline(verdict)
    style = _STATE_STYLES.get(verdict.state, "bold") if verdict.outcome == "decided" else "bold yellow"
    lines: list[Line] = []
    for number, line in enumerate(paragraph(f"{word}: {words.clean(verdict.summary)}", width)):
        text = line[-1][0]
        head = text[: len(word) + 1] if number == 0 and text.startswith(f"{word}:") else ""
        lines.append(((head, style), (text[len(head) :], "bold")))
    name = (
        f"{words.clean(verdict.finding)} ({words.clean(verdict.code)})"
        if verdict.code
        else words.clean(verdict.finding)
    )
    healthy = ". Healthy: nothing here needs fixing." if is_healthy(diagnosis) else ""
    lines.extend(paragraph(f"{name}, {words.confidence(verdict.confidence)}{healthy}", width))
    for label, text in (("Look here", culprit_sentence(diagnosis)), ("Engine", subject_sentence(diagnosis))):
        if text:
            lines.extend(paragraph(text, width, first=f"{label}: ", rest=" " * (len(label) + 2)))
    return lines


def is_healthy(diagnosis: Diagnosis) -> bool:
    """True for a decided idle or busy verdict, at least of medium confidence, beside which nothing weighs."""
    sure = diagnosis.verdict.confidence != "low"
    return sure and words.is_healthy(diagnosis.verdict) and all(f.severity == "info" for f in diagnosis.findings)


def culprit_sentence(diagnosis: Diagnosis) -> str:
    """The thread or process that must act, empty when there is none to blame."""
    verdict, culprit = diagnosis.verdict, diagnosis.verdict.culprit
    if culprit is None or verdict.outcome != "decided" or words.is_healthy(verdict):
        return ""
    parts = [words.process(culprit.process_role, culprit.pid, culprit.rank)]
    process = find_process(diagnosis, culprit.pid)
    if process is not None and words.os_state(process.os_state):
        parts.append(words.os_state(process.os_state))
    if culprit.thread_role:
        parts.append(words.clean(culprit.thread_role) + (f" (tid {culprit.tid})" if culprit.tid else ""))
    if culprit.wait_point and culprit.wait_point != "unknown":
        parts.append(f"at {words.clean(culprit.wait_point)}")
    return ", ".join(parts)


def subject_sentence(diagnosis: Diagnosis) -> str:
    """Engine, version and the processes that were looked at, empty when no process is known."""
    rows = diagnosis.processes
    if not rows:
        return ""
    best = next(
        (row for row in rows if row.engine and row.engine_version), next((r for r in rows if r.engine), rows[0])
    )
    python = next((words.clean(row.python_version) for row in rows if row.python_version), "")
    parts = [f"{words.clean(best.engine) or 'not recognised'} {words.clean(best.engine_version)}".strip()]
    parts += [f"Python {python}"] if python else []
    roles: dict[str, list[int]] = {}
    engine_rows = [row for row in rows if row.role != "helper"]
    for row in engine_rows or rows:
        roles.setdefault(words.clean(row.role) or "process", []).append(row.pid)
    for role, pids in roles.items():
        known = sorted(pid for pid in pids if pid > 0)
        pid = f" (pid{'s' if len(known) > 1 else ''} {words.spans(known)})" if known else ""
        parts.append(f"{role}{pid}" if len(pids) == 1 else f"{len(pids)} x {role}{pid}")
    return ", ".join(parts)


def main_finding(diagnosis: Diagnosis) -> Finding | None:
    """The finding that the verdict names, None when the verdict came without one."""
    return next((finding for finding in diagnosis.findings if finding.code == diagnosis.verdict.code), None)


def evidence_of(diagnosis: Diagnosis) -> tuple[Evidence, ...]:
    """The evidence of the verdict: its finding's, else that of the rule with its code."""
    finding = main_finding(diagnosis)
    if finding is not None:
        return finding.evidence
    return next((rule.evidence for rule in diagnosis.rules if rule.code == diagnosis.verdict.code), ())


def advice_of(diagnosis: Diagnosis) -> tuple[AdviceLine, ...]:
    """The advice of the verdict's finding."""
    finding = main_finding(diagnosis)
    return finding.advice if finding else ()


def evidence_lines(evidence: tuple[Evidence, ...], width: int, *, verbose: bool = False) -> list[Line]:
    """Value first, then the fact in plain words and what the rule asks of it."""
    values = [words.quantity(item.value, item.unit) for item in evidence]
    column = max([5, *(width_of(value) for value in values if width_of(value) <= 14)])
    lines: list[Line] = []
    for item, value in zip(evidence, values, strict=True):
        asked = words.threshold(item)
        text = words.fact(item) + (f" [rule: {asked}]" if asked else "")
        text += f" ({words.clean(item.fact)})" if verbose and item.meaning else ""
        if width_of(value) > 14:
            lines.extend(_bullet(f"{text}: {value}", width))
        else:
            blanks = " " * (column - width_of(value))
            lines.extend(paragraph(text, width, first=f"  {blanks}{value}  ", rest=" " * (column + 4)))
    return lines


def next_lines(diagnosis: Diagnosis, width: int) -> list[Line]:
    """Numbered pieces of evidence that would decide, each with its command."""
    lines: list[Line] = []
    for number, item in enumerate(next_evidence(diagnosis), start=1):
        lines.extend(paragraph(item.text, width, first=f"  {number}. ", rest="     "))
        if item.command:
            lines.extend(command(item.command, width, indent="       "))
    return lines


def advice_lines(diagnosis: Diagnosis, width: int) -> list[Line]:
    """Numbered advice, what each is expected to change, and its command on lines of its own."""
    lines: list[Line] = []
    for number, item in enumerate(advice_of(diagnosis), start=1):
        first = f"  {number}. "
        lines.extend(paragraph(words.clean(item.text), width, first=first, rest=" " * len(first)))
        if item.expect:
            lines.extend(
                paragraph(f"Expect: {words.clean(item.expect)}", width, first="     ", rest="     ", style="dim")
            )
        if item.command:
            lines.extend(command(item.command, width, indent="       "))
    return lines


def other_lines(diagnosis: Diagnosis, width: int) -> list[Line]:
    """Every fired finding that is not the verdict."""
    lines: list[Line] = []
    for finding in diagnosis.findings:
        if finding is main_finding(diagnosis):
            continue
        text = f"{words.clean(finding.finding)} ({words.clean(finding.code)}, {words.clean(finding.severity)},"
        text += f" {words.confidence(finding.confidence)}): {words.clean(finding.summary)}"
        lines.extend(
            paragraph(text, width, first="  - ", rest="    ", style=_SEVERITY_STYLES.get(finding.severity, ""))
        )
    return lines


def open_rule_lines(diagnosis: Diagnosis, width: int) -> list[Line]:
    """Rules that could not be decided, and the source each one lacks."""
    lines: list[Line] = []
    for rule in diagnosis.rules:
        if rule.missing:
            text = (
                f"{words.clean(rule.code)} lacks {words.listing([words.clean(item) for item in rule.missing], 'and')}"
            )
            lines.extend(_bullet(text, width))
    return lines


def _bullet(text: str, width: int) -> list[Line]:
    return paragraph(text, width, first="  - ", rest="    ")


def _colored(lines: list[Line], width: int) -> str:
    """The same lines with terminal colours; the environment is not asked."""
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=width, highlight=False, _environ={})
    for line in lines:
        text = Text.assemble(*((piece, style) for piece, style in line))
        text.rstrip()
        console.print(text, soft_wrap=True, markup=False, emoji=False)
    return out.getvalue()
