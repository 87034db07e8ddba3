"""The report for an issue or a chat: short, with the stacks in a block that unfolds."""

from __future__ import annotations

import re

from enginectl.model.diagnosed import Diagnosis
from enginectl.render import text_facts, words
from enginectl.render.chain import find_process, view_chain
from enginectl.render.lines import plain
from enginectl.render.next_evidence import candidates, next_evidence
from enginectl.render.text import advice_of, culprit_sentence, evidence_of, main_finding, subject_sentence
from enginectl.render.text_threads import thread_lines

_WIDTH = 100
_FRAMES = 12
_THREADS = 12
_SPECIAL = re.compile(r"([\\`*\[\]<>|~#&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")


def render_markdown(diagnosis: Diagnosis) -> str:
    """GitHub-flavoured Markdown, ending in a newline.

    Shape: one diagnosis -> text in which titles and thread names cannot break out of their place. Errors: none.
    """
    blocks = [_head(diagnosis), _undecided(diagnosis), _evidence(diagnosis), _chain(diagnosis), _advice(diagnosis)]
    blocks += [_others(diagnosis), _facts(diagnosis), _gaps(diagnosis), _details(diagnosis)]
    return "\n\n".join(block for block in [*blocks, _foot(diagnosis)] if block) + "\n"


def escape(text: object) -> str:
    """Free text with Markdown's and HTML's characters disarmed, on one line."""
    return _SPECIAL.sub(r"\\\1", words.clean(text))


def fence(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    ticks = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
    return f"{ticks}{language}\n{text}\n{ticks}"


def _head(diagnosis: Diagnosis) -> str:
    verdict = diagnosis.verdict
    name = f"`{_code(verdict.finding)}` ({escape(verdict.code)}), {escape(words.confidence(verdict.confidence))}"
    lines = [f"**{escape(words.headline(verdict))}**: {escape(verdict.summary)}", "", name]
    for label, text in (("Look here", culprit_sentence(diagnosis)), ("Engine", subject_sentence(diagnosis))):
        lines += ["", f"{label}: {escape(text)}"] if text else []
    return "\n".join(lines)


def _code(text: str) -> str:
    return words.clean(text).replace("`", "'").strip() or words.UNREAD


def _undecided(diagnosis: Diagnosis) -> str:
    lines = ["### Could be", "", *(f"- {escape(text)}" for text in candidates(diagnosis))]
    wanted = next_evidence(diagnosis)
    steps = ["### Next evidence, to tell them apart", ""]
    for item in wanted:
        steps.append(f"1. {escape(item.text)}")
        if item.command:
            steps.append(_indented(fence(words.clean_block(item.command), "sh")))
    return "\n\n".join(["\n".join(part) for part in (lines, steps) if len(part) > 2])


def _evidence(diagnosis: Diagnosis) -> str:
    rows = [
        f"| {escape(words.quantity(item.value, item.unit))} | {escape(words.fact(item))}"
        f" | {escape(words.threshold(item))} |"
        for item in evidence_of(diagnosis)
    ]
    return (
        "\n".join(["### Evidence", "", "| Value | Fact | Rule asks |", "| ---: | --- | --- |", *rows]) if rows else ""
    )


def _chain(diagnosis: Diagnosis) -> str:
    view = view_chain(diagnosis)
    lines = []
    for depth, step in enumerate(view.steps):
        mark = f" **{escape(step.mark).replace('<', '')}**" if step.is_target else f" ({escape(step.mark)})"
        link = step.link
        told = f" waits for {escape(words.awaited(link.waits_for))}" if link.waits_for else ""
        told += f", through {escape(link.through)}" if told and link.through else ""
        meaning = f": {escape(link.meaning)}" if link.meaning and (step.is_target or not told) else ""
        lines.append("  " * depth + f"- {escape(step.label)}{mark if step.mark else ''}{told}{meaning}")
    if view.steps and view.back_to is not None:
        lines.append("  " * len(lines) + f"- back to {escape(view.steps[view.back_to].label)}: **a cycle**")
    return "\n".join(["### Chain (who waits for whom)", "", *lines]) if lines else ""


def _advice(diagnosis: Diagnosis) -> str:
    lines = []
    for item in advice_of(diagnosis):
        expect = f" *Expect: {escape(item.expect)}*" if item.expect else ""
        lines.append(f"1. {escape(item.text)}{expect}")
        if item.command:
            lines.append(_indented(fence(words.clean_block(item.command), "sh")))
    return "\n".join(["### What to do", "", *lines]) if lines else ""


def _others(diagnosis: Diagnosis) -> str:
    main = main_finding(diagnosis)
    lines = [
        f"- `{_code(finding.finding)}` ({escape(finding.code)}, {escape(finding.severity)}): {escape(finding.summary)}"
        for finding in diagnosis.findings
        if finding is not main
    ]
    return "\n".join(["### Other findings", "", *lines]) if lines else ""


def _facts(diagnosis: Diagnosis) -> str:
    lines = [text_facts.gpu_sentence(gpu) for gpu in diagnosis.gpus]
    counters = text_facts.counter_sentence(diagnosis)
    lines += [f"Engine counters: {counters}"] if counters else []
    lines += [text_facts.endpoint_sentence(diagnosis), *diagnosis.buckets, *diagnosis.notes]
    shown = [f"- {escape(line)}" for line in lines if line]
    return "\n".join(["### Facts", "", *shown]) if shown else ""


def _gaps(diagnosis: Diagnosis) -> str:
    lines = []
    for gap in diagnosis.gaps:
        block = "\n" in gap.remedy.strip() or gap.remedy.startswith("$ ")
        told = f" -\\> {escape(gap.remedy)}" if gap.remedy and not block else ""
        lines.append(f"- {escape(gap.source)}: {escape(gap.reason)}{told}")
        if block:
            lines.append(_indented(fence(words.clean_block(gap.remedy).strip("\n")), "  "))
    return "\n".join(["### Could not be read", "", *lines]) if lines else ""


def _details(diagnosis: Diagnosis) -> str:
    table = "\n".join(plain(line) for line in thread_lines(diagnosis, _WIDTH))
    stacks = "\n\n".join(_stacks(diagnosis))
    body = "\n\n".join(fence(block) for block in (table, stacks) if block.strip())
    if not body:
        return ""
    return f"<details>\n<summary>Threads and stacks</summary>\n\n{body}\n\n</details>"


def _stacks(diagnosis: Diagnosis) -> list[str]:
    view = view_chain(diagnosis)
    wanted = {(step.link.pid, step.link.tid) for step in view.steps}
    culprit = diagnosis.verdict.culprit
    if culprit is not None:
        wanted.add((culprit.pid or 0, culprit.tid))
    stacks: list[str] = []
    for process in diagnosis.processes:
        for row in process.threads:
            if row.frames and (process.pid, row.tid) in wanted and len(stacks) < _THREADS:
                owner = find_process(diagnosis, process.pid) or process
                name = words.process(owner.role, owner.pid, owner.rank)
                head = f"{name}, {words.clean(row.role)}, tid {row.tid}, innermost frame first"
                frames = [f"  {words.clean(text)}" for text in row.frames[:_FRAMES]]
                stacks.append("\n".join([head, *frames]))
    return stacks


def _foot(diagnosis: Diagnosis) -> str:
    reached, missing = text_facts.tier_sentences(diagnosis)
    return escape(
        " ".join([text_facts.cost_sentence(diagnosis), reached, *(f"{text}." for text, _ in missing)]).strip()
    )


def _indented(block: str, margin: str = "   ") -> str:
    return "\n".join(margin + line for line in block.split("\n"))
