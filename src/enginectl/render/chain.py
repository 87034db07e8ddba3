"""The blame chain as every report shows it: who is a victim, where to look, and where a cycle closes."""

from __future__ import annotations

import msgspec

from enginectl.model.diagnosed import ChainLink, Diagnosis, ProcessRow, ThreadRow
from enginectl.render import words

LOOK_HERE = "<- look here"
_CYCLE_FINDINGS = frozenset({"deadlock", "message-lost"})


class ChainStep(msgspec.Struct, frozen=True, kw_only=True):
    """One drawn step. `mark` is "victim", "<- look here", "in the cycle" or what ends a harmless chain."""

    link: ChainLink
    label: str
    mark: str
    is_target: bool
    thread: ThreadRow | None


class ChainView(msgspec.Struct, frozen=True, kw_only=True):
    """Steps in order; `back_to` is the index of the step that the last one waits for, None without a cycle."""

    steps: tuple[ChainStep, ...]
    back_to: int | None


def view_chain(diagnosis: Diagnosis) -> ChainView:
    """The chain with marks. Shape: n links -> n steps (one less when the last link repeats an earlier one)."""
    links = diagnosis.chain
    back_to = _cycle_start(links, diagnosis.verdict.finding)
    if back_to is not None and _same(links[-1], links[back_to]) and back_to != len(links) - 1:
        links = links[:-1]
    target = _target(links, diagnosis)
    steps = tuple(
        ChainStep(
            link=link,
            label=_label(link, diagnosis),
            mark=_mark(index, len(links), target, back_to, diagnosis),
            is_target=index == target or (back_to is not None and index >= back_to),
            thread=find_thread(diagnosis, link.pid, link.tid),
        )
        for index, link in enumerate(links)
    )
    return ChainView(steps=steps, back_to=back_to)


def find_process(diagnosis: Diagnosis, pid: int | None) -> ProcessRow | None:
    """The row of a pid, None when it is not in the report."""
    return next((process for process in diagnosis.processes if process.pid == pid), None)


def find_thread(diagnosis: Diagnosis, pid: int | None, tid: int | None) -> ThreadRow | None:
    """The row of a thread, None when it is not in the report."""
    process = find_process(diagnosis, pid)
    return next((thread for thread in process.threads if thread.tid == tid), None) if process else None


def _cycle_start(links: tuple[ChainLink, ...], finding: str) -> int | None:
    if len(links) < 2:
        return None
    last = links[-1]
    for index, link in enumerate(links[:-1]):
        if _same(link, last):
            return index
    if finding not in _CYCLE_FINDINGS or not last.waits_for:
        return None
    role = last.waits_for.rpartition(":")[2]
    named = (i for i, link in enumerate(links[:-1]) if role in (link.thread_role, link.process_role))
    return next(named, 0 if finding == "deadlock" else None)


def _same(one: ChainLink, other: ChainLink) -> bool:
    return (one.pid, one.tid, one.thread_role) == (other.pid, other.tid, other.thread_role)


def _target(links: tuple[ChainLink, ...], diagnosis: Diagnosis) -> int | None:
    """Index of the link to look at: the culprit's, else the sink when the verdict names no culprit."""
    culprit = diagnosis.verdict.culprit
    if not links or diagnosis.verdict.outcome != "decided":
        return None
    if culprit is None:
        return len(links) - 1
    matches = [
        index
        for index, link in enumerate(links)
        if link.pid == culprit.pid and (culprit.tid is None or link.tid == culprit.tid)
    ]
    return matches[-1] if matches else None


def _mark(index: int, count: int, target: int | None, back_to: int | None, diagnosis: Diagnosis) -> str:
    if back_to is not None and index >= back_to:
        return "in the cycle"
    if words.is_healthy(diagnosis.verdict):
        return "<- the time goes here" if index == target and diagnosis.verdict.state == "busy" else ""
    if index == target:
        return LOOK_HERE
    if diagnosis.verdict.outcome != "decided":
        return "<- the chain ends here" if index == count - 1 else ""
    return "victim" if target is None or index < target else ""


def _label(link: ChainLink, diagnosis: Diagnosis) -> str:
    process = find_process(diagnosis, link.pid)
    owner = words.process(link.process_role, link.pid, process.rank if process else None)
    return f"{owner}, {words.clean(link.thread_role)}" if link.thread_role else owner
