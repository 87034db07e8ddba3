"""The report as one self-contained HTML file: no network, usable without scripts, printable."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from enginectl.model.diagnosed import Diagnosis, ProcessRow, ThreadRow
from enginectl.model.timeline import Timeline
from enginectl.render import text, text_facts, words
from enginectl.render.next_evidence import candidates, next_evidence
from enginectl.render.svg_chain import draw_chain
from enginectl.render.svg_timeline import draw_timeline
from enginectl.render.threads import HOT_RATIO

if TYPE_CHECKING:
    import jinja2

_TEMPLATE = "report.html.j2"


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """One foldable stack; the culprit's is open from the start."""

    heading: str
    place: str
    frames: tuple[str, ...]
    is_culprit: bool


def render_html(diagnosis: Diagnosis, *, timeline: Timeline | None = None) -> str:
    """One HTML document; `timeline` adds the drawing over time.

    Shape: a diagnosis -> text; every string of the diagnosis is escaped. Errors: UsageError when jinja2 (the extra
    `html`) is not installed.
    """
    return _template().render(
        d=diagnosis,
        w=words,
        headline=words.headline(diagnosis.verdict),
        tone=_tone(diagnosis),
        culprit=text.culprit_sentence(diagnosis),
        subject=text.subject_sentence(diagnosis),
        healthy=text.is_healthy(diagnosis),
        candidates=candidates(diagnosis),
        next_evidence=next_evidence(diagnosis),
        evidence=[
            (words.quantity(item.value, item.unit), words.fact(item), words.threshold(item), words.clean(item.fact))
            for item in text.evidence_of(diagnosis)
        ],
        advice=text.advice_of(diagnosis),
        others=[finding for finding in diagnosis.findings if finding is not text.main_finding(diagnosis)],
        timeline=draw_timeline(timeline),
        chain=draw_chain(diagnosis),
        tables=[
            (process, _rows(process, helpers=False), _rows(process, helpers=True)) for process in diagnosis.processes
        ],
        stacks=_stacks(diagnosis),
        gpus=[text_facts.gpu_sentence(gpu) for gpu in diagnosis.gpus],
        counters=text_facts.counter_sentence(diagnosis),
        endpoint=text_facts.endpoint_sentence(diagnosis),
        cost=text_facts.cost_sentence(diagnosis),
        tiers=text_facts.tier_sentences(diagnosis),
    )


def _template() -> jinja2.Template:
    try:
        import jinja2
    except ModuleNotFoundError as error:
        from enginectl.errors import UsageError

        raise UsageError("HTML reports need jinja2", "pip install 'enginectl[html]'") from error
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(clean=words.clean, block=words.clean_block, ratio=words.ratio, steps=_steps)
    return environment.from_string(files("enginectl.render").joinpath(_TEMPLATE).read_text("utf-8"))


def _tone(diagnosis: Diagnosis) -> str:
    """The banner's colour: good, warn, bad or open."""
    verdict = diagnosis.verdict
    if verdict.outcome != "decided":
        return "open"
    if verdict.state in ("hung", "crashed"):
        return "bad"
    return "good" if text.is_healthy(diagnosis) else "warn"


def _steps(remedy: str) -> list[tuple[str, str]]:
    """A remedy as ("prose" | "code", text) pieces; lines that start with `$ ` or two blanks are code."""
    pieces: list[tuple[str, str]] = []
    for line in words.clean_block(remedy).strip("\n").split("\n"):
        kind = "code" if line.startswith(("$ ", "  ")) else "prose"
        line = line.removeprefix("$ ")
        if kind == "code" and pieces and pieces[-1][0] == "code":
            pieces[-1] = ("code", f"{pieces[-1][1]}\n{line}")
        elif line.strip():
            pieces.append((kind, line))
    return pieces


def _rows(process: ProcessRow, *, helpers: bool) -> list[dict[str, Any]]:
    return [
        {"thread": row, "state": words.thread_state(row), "name": words.clean(row.name) or f"tid {row.tid}"}
        for row in process.threads
        if _is_quiet_helper(row) == helpers
    ]


def _is_quiet_helper(row: ThreadRow) -> bool:
    return row.role in words.HELPER_ROLES and max(row.cpu_ratio or 0.0, row.gil_ratio or 0.0) < HOT_RATIO


def _stacks(diagnosis: Diagnosis) -> list[Stack]:
    culprit = diagnosis.verdict.culprit
    stacks = []
    for process in diagnosis.processes:
        for row in process.threads:
            if row.frames:
                name = f", {words.clean(row.name)}" if row.name else ""
                owner = words.process(process.role, process.pid, process.rank)
                stacks.append(
                    Stack(
                        heading=f"{owner}, {words.clean(row.role)} (tid {row.tid}{name})",
                        place=words.clean(row.meaning) or words.wait_class(row.wait_class),
                        frames=tuple(words.clean(frame) for frame in row.frames),
                        is_culprit=culprit is not None and (process.pid, row.tid) == (culprit.pid, culprit.tid),
                    )
                )
    return sorted(stacks, key=lambda stack: not stack.is_culprit)
