"""Chooses the verdict among the rules' answers, or stays undecided with candidates and what would tell them apart."""

from __future__ import annotations

from collections.abc import Sequence

from enginectl.diagnose.facts import FACTS
from enginectl.diagnose.measures import Measures
from enginectl.knowledge.schema import Case, Rule
from enginectl.model.classified import ThreadView
from enginectl.model.diagnosed import Culprit, Outcome, RuleVerdict, Verdict

UNDECIDED_PREFIX = "EC9"
NEEDS = ("second-sample", "gpu", "peer-stacks", "collectives", "engine-counters", "native", "stacks", "host")
MAX_CANDIDATES = 4


def lower(confidence: str) -> str:
    """One step less sure."""
    return {"high": "medium", "medium": "low"}.get(confidence, "low")


def case_of(rule: Rule, answer: RuleVerdict) -> Case:
    """The case that an answer speaks of."""
    return rule.case[answer.case]


def confidence_of(rule: Rule, answer: RuleVerdict, measures: Measures) -> str:
    """The case's own confidence, lowered when there is no second sample, no stack, or stacks that may be torn."""
    confidence = case_of(rule, answer).confidence or rule.confidence
    if measures.stack_samples == 0 and "stacks" in rule.needs:
        return lower(confidence)
    if measures.stack_samples == 1 and rule.state in ("hung", "slow", "busy"):
        return lower(confidence)
    if measures.stacks_may_be_torn and "stacks" in rule.needs:
        return lower(confidence)
    return confidence


def _thread_of(measures: Measures, selector: str) -> ThreadView | None:
    """The thread that a culprit selector names."""
    if selector == "cycle":
        nodes = [n for cycle in measures.topology.cycles for n in cycle]
        return measures.by_node[nodes[0]] if nodes else None
    if selector == "gil-holder":
        held = [t for t in measures.threads if t.gil_ratio and t.role != "engine-loop"]
        return max(held, key=lambda t: t.gil_ratio or 0.0, default=None)
    if selector == "hot-thread":
        hot = [t for t in measures.select("stray") if t.cpu_ratio is not None]
        return max(hot, key=lambda t: t.cpu_ratio or 0.0, default=None)
    if selector == "odd-rank":
        buckets = measures.topology.buckets
        # whoever waits in the collective is a victim; among the others the smallest group is the odd one
        odd = min(buckets, key=lambda b: (b.wait_class == "collective", len(b.members))) if len(buckets) > 1 else None
        return measures.by_node[odd.members[0]] if odd else None
    if selector.startswith("at:"):
        wait = selector.removeprefix("at:")
        at = [t for t in measures.threads if (measures.wait_share(t, wait) or 0.0) > 0]
        return max(at, key=lambda t: measures.wait_share(t, wait) or 0.0, default=None)
    threads = measures.select(selector)
    return max(threads, key=lambda t: (t.running_ratio or 0.0, t.cpu_ratio or 0.0), default=None)


def culprit_of(measures: Measures, selector: str) -> Culprit | None:
    """Who must act or change, by the selector of the rule: a role, or one of the special words of the schema."""
    state, _, role = selector.partition(":")
    if state in ("stopped", "gone"):
        ended = [
            p
            for p in measures.topology.processes
            if role in ("", p.role) and (p.stopped if state == "stopped" else p.os_state in ("X", "Z"))
        ]
        process = next((p for p in ended if p.role != "helper"), ended[0] if ended else None)
        if process is None:
            return None
        return Culprit(pid=process.pid, process_role=process.role, rank=rank_of(process.ranks))
    if selector.startswith("process:"):
        role = selector.removeprefix("process:")
        process = next((p for p in measures.topology.processes if p.role == role), None)
        return Culprit(pid=process.pid, process_role=role, rank=rank_of(process.ranks)) if process else None
    if selector == "odd-count":
        return _odd_count(measures)
    if selector == "missing-role" and measures.topology.missing_roles:
        pid, thread_role = measures.topology.missing_roles[0]
        process = measures.process_by_pid[pid]
        return Culprit(pid=pid, process_role=process.role, rank=rank_of(process.ranks), thread_role=thread_role)
    thread = _thread_of(measures, selector or "sink")
    if thread is None:
        return None
    process = measures.process_by_pid[thread.pid]
    return Culprit(
        pid=thread.pid,
        process_role=process.role,
        rank=rank_of(process.ranks),
        tid=thread.tid,
        thread_role=thread.role,
        wait_point=thread.wait_id,
        wait_class=thread.wait_class,
    )


def _odd_count(measures: Measures) -> Culprit | None:
    """The rank that stands apart in its count of collectives; its process may be on another host."""
    apart = measures.collectives.apart if measures.collectives else None
    if apart is None:
        return None
    odd = apart.ranks[0]
    process = measures.process_by_pid.get(odd.pid) if odd.pid is not None else None
    thread = next((t for t in process.threads if t.role in ("worker-loop", "engine-loop")), None) if process else None
    return Culprit(
        pid=odd.pid,
        process_role=process.role if process else "worker",
        rank=odd.rank,
        tid=thread.tid if thread else None,
        thread_role=thread.role if thread else "worker-loop",
        wait_point=thread.wait_id if thread else None,
        wait_class=thread.wait_class if thread else "unknown",
    )


def rank_of(ranks: dict[str, int]) -> int | None:
    """The one number shown for a process: its tensor rank, else the first label it has."""
    return ranks.get("tp", next(iter(ranks.values()), None))


SUPPORTING_SOURCES = frozenset({"stacks", "dump", "second-sample", "peer-stacks", "gpu", "collectives"})
"""A candidate must have something on a stack that speaks for it; the absence of counters speaks for nothing."""


def _support(answer: RuleVerdict) -> int:
    """How many comparisons of the nearest case hold on what was seen; none counts unless the main one holds."""
    if not answer.evidence or not answer.evidence[0].holds:
        return 0
    return sum(bool(e.holds) and FACTS[e.fact].source in SUPPORTING_SOURCES for e in answer.evidence)


def _candidates(answers: Sequence[RuleVerdict], rules: dict[str, Rule]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Findings that could still be true, most telling first, and the sources they lack."""
    open_ = [
        a for a in answers if a.outcome is Outcome.UNDECIDED and not a.code.startswith(UNDECIDED_PREFIX) and _support(a)
    ]
    open_.sort(key=lambda a: (-_support(a), sum(e.holds is None for e in a.evidence), -rules[a.code].rank))
    chosen = open_[:MAX_CANDIDATES]
    missing = {source for a in chosen for source in a.missing}
    needs = tuple(n for n in NEEDS if n in missing or (n == "engine-counters" and "proc" in missing))
    return tuple(rules[a.code].finding for a in chosen), needs


def choose(
    answers: Sequence[RuleVerdict], rules: dict[str, Rule], measures: Measures, summarise: dict[str, str]
) -> Verdict:
    """The verdict: the fired rule of the highest rank; 9xx findings and nothing fired are undecided."""
    fired = [a for a in answers if a.outcome is Outcome.FIRED]
    answer = next((a for a in fired if not a.code.startswith(UNDECIDED_PREFIX)), None)
    override = next((a for a in fired if a.code.startswith(UNDECIDED_PREFIX)), None)
    if override and (answer is None or rules[override.code].rank > rules[answer.code].rank):
        answer = override
    if answer is None:
        answer = RuleVerdict(code="EC903", outcome=Outcome.UNDECIDED)
    rule = rules[answer.code]
    case = case_of(rule, answer)
    undecided = answer.code.startswith(UNDECIDED_PREFIX)
    candidates: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    if undecided:
        candidates, needs = _candidates(answers, rules)
        candidates = tuple(dict.fromkeys((*candidates, *case.candidates)))[:MAX_CANDIDATES]
        needs = tuple(dict.fromkeys((*needs, *case.needs))) or ("second-sample",)
    return Verdict(
        state=case.state or rule.state,
        outcome="undecided" if undecided else "decided",
        finding=rule.finding,
        code=rule.id,
        confidence=confidence_of(rule, answer, measures),
        summary=summarise[rule.id],
        candidates=candidates,
        needs=needs,
        culprit=culprit_of(measures, case.culprit or rule.culprit),
    )
