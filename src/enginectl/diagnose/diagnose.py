"""A recording in, the whole `Diagnosis` out. Pure: the same recording gives the same diagnosis anywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence

from enginectl.classify.topology import topology
from enginectl.diagnose.advice import advice_lines
from enginectl.diagnose.evaluate import evaluate_all
from enginectl.diagnose.facts import FACTS
from enginectl.diagnose.measures import Measures
from enginectl.diagnose.tiers import tiers_of
from enginectl.diagnose.verdict import UNDECIDED_PREFIX, case_of, choose, confidence_of, culprit_of, rank_of
from enginectl.knowledge.loader import Knowledge
from enginectl.knowledge.schema import Rule
from enginectl.model.classified import ProcessView, ThreadView
from enginectl.model.diagnosed import (
    ChainLink,
    Cost,
    Diagnosis,
    Finding,
    Outcome,
    ProcessRow,
    RuleVerdict,
    ThreadRow,
    Verdict,
)
from enginectl.model.observed import Recording

SEVERITY_ORDER = {"critical": 0, "warning": 1, "info": 2}
SHOWN_FRAMES = 40
CAUSES = frozenset({"process-stopped", "thread-died", "engine-exited", "worker-lost", "device-fault"})
"""Findings that explain every hang beside them."""


def measures_of(recording: Recording, knowledge: Knowledge) -> Measures:
    """Everything that facts look at, for callers that want facts beside the diagnosis."""
    return Measures(recording, topology(recording, knowledge), knowledge)


def diagnose(recording: Recording, knowledge: Knowledge, measures: Measures | None = None) -> Diagnosis:
    """The diagnosis of one recording; `measures` are those of the same recording, when they are there already.

    Errors: none; what cannot be told is undecided.  Source: the recording and the knowledge files only.
    """
    measures = measures or measures_of(recording, knowledge)
    rules = knowledge.rules
    answers = evaluate_all(measures, tuple(rules.values()))
    summaries = {a.code: summary_of(rules[a.code], a, measures) for a in answers}
    verdict = choose(answers, rules, measures, summaries)
    fired = [a for a in answers if a.outcome is Outcome.FIRED and _adds(rules[a.code], verdict)]
    findings = [_finding(measures, rules[a.code], a, summaries[a.code]) for a in fired]
    if verdict.code not in {f.code for f in findings}:
        rule = rules[verdict.code]
        findings.append(
            _finding(measures, rule, RuleVerdict(code=rule.id, outcome=Outcome.UNDECIDED), summaries[rule.id])
        )
    findings.sort(key=lambda f: (f.code != verdict.code, SEVERITY_ORDER[f.severity], -rules[f.code].rank))
    snapshots = recording.snapshots
    return Diagnosis(
        schema_version=1,
        verdict=verdict,
        findings=tuple(findings),
        chain=_chain(measures),
        processes=tuple(_process_row(p) for p in measures.topology.processes),
        gpus=next((s.gpus for s in reversed(snapshots) if s.gpus), ()) or (),
        engine_counters=_counters(measures),
        tiers=tiers_of(recording),
        gaps=tuple(dict.fromkeys((*recording.gaps, *(g for s in snapshots for g in s.gaps)))),
        cost=Cost(
            wall_seconds=recording.wall_seconds,
            pause_seconds_max=max((s.pause_seconds for s in snapshots), default=0.0),
            samples=len(snapshots),
        ),
        endpoint=next((s.endpoint for s in reversed(snapshots) if s.endpoint), None),
        understood=recording.understood,
        notes=recording.notes if recording.made_by == "observe" else (),
        rules=answers,
        buckets=_bucket_lines(measures),
    )


def _adds(rule: Rule, verdict: Verdict) -> bool:
    """Whether a fired rule says anything beside the verdict: rest, work and "cannot tell" add nothing."""
    if rule.id == verdict.code:
        return True
    if verdict.finding in CAUSES and "hung" in rule.state:
        return False  # everything else stands still because of it
    # locks, compilers and quiet queues are part of every start
    return verdict.state != "starting" and rule.severity != "info" and not rule.id.startswith(UNDECIDED_PREFIX)


_FIELD = re.compile(r"\{([a-z_.]+)(?:\|([^|{}]*))?(?:\|([^{}]*))?\}")


def summary_of(rule: Rule, answer: RuleVerdict, measures: Measures) -> str:
    """The sentence of a rule with its `{fact}`, `{fact|of}` and `{fact|of|wait}` fields filled in."""
    text = rule.case[answer.case].summary or rule.summary
    culprit = culprit_of(measures, rule.case[answer.case].culprit or rule.culprit)

    def fill(field: re.Match[str]) -> str:
        name = field[1]
        if name.startswith("culprit."):
            value = getattr(culprit, name.removeprefix("culprit."), None) if culprit else None
            return str(value) if value is not None else "?"
        if name == "culprit_place":
            return _place(measures, culprit.pid, culprit.tid) if culprit else "?"
        if name == "culprit_name":
            thread = measures.by_node.get((culprit.pid or 0, culprit.tid or 0)) if culprit else None
            return thread.name if thread and thread.name else "?"
        fact = FACTS[name]
        return _words(fact.measure(measures, field[2] or "", field[3] or ""), fact.unit)

    return _FIELD.sub(fill, text)


def _place(measures: Measures, pid: int | None, tid: int | None) -> str:
    """The innermost telling frame of a thread: the first one that its wait point matched."""
    thread = measures.by_node.get((pid or 0, tid or 0))
    frames = (thread.matched or thread.frames) if thread else ()
    return f"{frames[0].function} ({frames[0].file.rsplit('/', 1)[-1]})" if frames else "?"


def _words(value: float | str | bool | None, unit: str) -> str:
    if value is None:
        return "?"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if unit == "ratio":
        return f"{value:.0%}"
    if unit == "s":
        return f"{value:.0f} s"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _finding(measures: Measures, rule: Rule, answer: RuleVerdict, summary: str) -> Finding:
    case = case_of(rule, answer)
    culprit = culprit_of(measures, case.culprit or rule.culprit)
    version = next((p.engine_version for p in measures.topology.processes if p.engine_version), None)
    return Finding(
        code=rule.id,
        finding=rule.finding,
        state=case.state or rule.state,
        severity=case.severity or rule.severity,
        confidence=confidence_of(rule, answer, measures),
        summary=summary,
        evidence=tuple(e for e in answer.evidence if not e.fact.startswith(("evidence.", "window.samples"))),
        advice=advice_lines(
            measures.knowledge,
            measures.recording,
            rule.advice,
            engine=measures.engine_name,
            version=version,
            culprit=culprit,
            frozen_seconds=measures.engine.frozen_seconds,
        ),
        docs=(f"enginectl explain {rule.id}",),
    )


def _chain(measures: Measures) -> tuple[ChainLink, ...]:
    edges = {e.waiter: e for e in measures.topology.edges}
    nodes: Sequence[tuple[int, int]] = (
        measures.topology.cycles[0] if measures.topology.cycles else measures.topology.chain
    )
    links: list[ChainLink] = []
    for node in nodes:
        thread = measures.by_node[node]
        edge = edges.get(node)
        last = node == nodes[-1] and not measures.topology.cycles
        links.append(
            ChainLink(
                pid=thread.pid,
                tid=thread.tid,
                thread_role=thread.role,
                process_role=measures.process_by_pid[thread.pid].role,
                waits_for=edge.actor_role if edge and not (last and edge.actor is None and not edge.actor_role) else "",
                through=edge.channel if edge else "",
                wait_point=thread.wait_id or "unknown",
                wait_class=thread.wait_class,
                meaning=thread.meaning,
            )
        )
    return tuple(links)


def _thread_row(thread: ThreadView) -> ThreadRow:
    return ThreadRow(
        tid=thread.tid,
        name=thread.name,
        role=thread.role,
        wait_point=thread.wait_id or "unknown",
        wait_class=thread.wait_class,
        activity=thread.activity.value,
        meaning=thread.meaning,
        os_state=thread.os_state,
        running_ratio=thread.running_ratio,
        cpu_ratio=thread.cpu_ratio,
        gil_ratio=thread.gil_ratio,
        runqueue_ratio=thread.runqueue_ratio,
        frames=tuple(f"{f.function} ({f.file}{f':{f.line}' if f.line else ''})" for f in thread.frames[:SHOWN_FRAMES]),
    )


def _process_row(process: ProcessView) -> ProcessRow:
    return ProcessRow(
        pid=process.pid,
        role=process.role,
        rank=rank_of(process.ranks),
        title=process.title,
        engine=process.engine or "",
        engine_version=process.engine_version or "",
        python_version=process.python_version or "",
        os_state=process.os_state or "",
        cpu_ratio=process.cpu_ratio,
        threads=tuple(_thread_row(t) for t in process.threads),
    )


_COUNTERS = (
    "running", "waiting", "kv_usage_ratio", "tokens_per_second", "prompt_tokens_per_second", "finished_per_second",
    "aborted_per_second", "preemptions_per_second", "unanswered_requests", "unanswered_seconds", "unclear_requests",
    "frozen_seconds",
)  # fmt: skip


def _counters(measures: Measures) -> dict[str, float]:
    clock = measures.engine
    return {name: float(value) for name in _COUNTERS if (value := getattr(clock, name)) is not None}


def _bucket_lines(measures: Measures) -> tuple[str, ...]:
    """One line per group of ranks that stand at the same place; empty with fewer than two groups."""
    buckets = measures.topology.buckets
    if len(buckets) < 2:
        return ()
    lines = []
    for bucket in buckets:
        ranks = [measures.process_by_pid[pid] for pid, _ in bucket.members]
        names = [p.title or f"pid {p.pid}" for p in ranks]
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        place = bucket.wait_id or (bucket.signature[0] if bucket.signature else "no frame")
        lines.append(f"{len(names)} x {bucket.role} at {place}: {shown}")
    return tuple(lines)
