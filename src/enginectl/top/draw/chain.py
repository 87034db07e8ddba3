"""The page behind `c`: who waits for whom, what speaks for the verdict, and what to do."""

from __future__ import annotations

from rich.text import Text

from enginectl.model.diagnosed import Diagnosis
from enginectl.render import words
from enginectl.render.chain import ChainStep, ChainView, view_chain
from enginectl.top.draw.style import ALARM, DIM, TROUBLE, wrap
from enginectl.top.screenful import Screenful


def chain(screen: Screenful, width: int) -> list[Text]:
    """The blame chain, victims first; the end is where to look. Then evidence and advice."""
    diagnosis = screen.diagnosis
    if diagnosis is None:
        return [Text("There is no diagnosis yet.")]
    view = view_chain(diagnosis)
    lines = [Text(part, "bold") for part in wrap(diagnosis.verdict.summary, width, 4)] + [Text("")]
    if not view.steps:
        lines.append(Text("No chain: nobody waits for anybody that can be seen."))
    for number, step in enumerate(view.steps):
        lines += _step(view, number, step, width)
    return [*lines, *_evidence(diagnosis, width), *_advice(diagnosis, width)]


def _step(view: ChainView, number: int, step: ChainStep, width: int) -> list[Text]:
    head = Text().append(f"{number + 1}. {step.label}", "bold" if step.is_target else "")
    head.append(f"  {step.mark}", ALARM if step.is_target else DIM)
    link = step.link
    told = words.clean(link.meaning or words.wait_class(link.wait_class))
    told += f" ({words.clean(link.wait_point)})" if link.wait_point else ""
    lines = [head, *(Text(f"     {part}", DIM) for part in wrap(told, width - 5, 3))]
    if link.waits_for and (number + 1 < len(view.steps) or view.back_to is not None):
        through = f" through {words.clean(link.through)}" if link.through else ""
        back = f", step {view.back_to + 1} again" if view.back_to is not None and step is view.steps[-1] else ""
        lines.append(Text(f"   ↓ waits for {words.awaited(link.waits_for)}{through}{back}", TROUBLE))
    return lines


def _evidence(diagnosis: Diagnosis, width: int) -> list[Text]:
    found = next((f for f in diagnosis.findings if f.code == diagnosis.verdict.code), None)
    if found is None or not found.evidence:
        return []
    lines = [Text(""), Text("EVIDENCE", "bold")]
    for evidence in found.evidence:
        asked = words.threshold(evidence)
        value = words.quantity(evidence.value, evidence.unit)
        told = f"{words.fact(evidence)}: {value}" + (f" ({asked})" if asked else "")
        lines += _hanging(told, width)
    return lines


def _advice(diagnosis: Diagnosis, width: int) -> list[Text]:
    found = next((f for f in diagnosis.findings if f.code == diagnosis.verdict.code), None)
    if found is None or not found.advice:
        return []
    lines = [Text(""), Text("WHAT TO DO", "bold")]
    for advice in found.advice:
        lines += _hanging(advice.text, width)
        if advice.command:
            lines += [Text(f"      $ {part}", TROUBLE) for part in wrap(advice.command, width - 8, 4)]
    return lines


def _hanging(told: str, width: int) -> list[Text]:
    return [Text(f"  {'-' if at == 0 else ' '} {part}") for at, part in enumerate(wrap(told, width - 4, 4))]
