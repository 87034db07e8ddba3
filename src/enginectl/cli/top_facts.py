"""What `top` reads out of single snapshots: wait classes at one instant, rates between two, the model's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from enginectl.knowledge.loader import Knowledge
from enginectl.model.observed import CounterSample, ProcessFact, Recording, Snapshot

Node = tuple[int, int]
Reading = tuple[float, float | None, float | None]
"""When, CPU seconds and run-queue seconds so far."""
_MODEL_FLAGS = ("--served-model-name", "--model", "--model-path")


def classes_of(recording: Recording, snapshot: Snapshot, knowledge: Knowledge) -> dict[Node, str] | None:
    """Wait class of every thread in this one snapshot; None when it carries no stacks."""
    from enginectl.classify.topology import topology

    if not any(thread.frames is not None for process in snapshot.processes for thread in process.threads):
        return None
    alone = msgspec.structs.replace(recording, snapshots=(snapshot,))
    return {
        (process.pid, thread.tid): next(iter(thread.class_ratios), thread.wait_class)
        for process in topology(alone, knowledge).processes
        for thread in process.threads
        if thread.frames
    }


def readings_of(snapshot: Snapshot) -> dict[Node, Reading]:
    """The totals of every thread of a snapshot."""
    at = snapshot.offset_seconds
    rows = ((process.pid, thread) for process in snapshot.processes for thread in process.threads)
    return {(pid, thread.tid): (at, thread.cpu_seconds, thread.runqueue_seconds) for pid, thread in rows}


def rates(before: Mapping[Node, Reading], after: Mapping[Node, Reading]) -> tuple[dict[Node, float], dict[Node, float]]:
    """Cores used and share of time in the run queue between two readings of the same threads."""
    cpu: dict[Node, float] = {}
    runqueue: dict[Node, float] = {}
    for node, (at, used, queued) in after.items():
        began, used_before, queued_before = before.get(node, (at, None, None))
        if at <= began:
            continue
        if used is not None and used_before is not None:
            cpu[node] = max(0.0, (used - used_before) / (at - began))
        if queued is not None and queued_before is not None:
            runqueue[node] = min(1.0, max(0.0, (queued - queued_before) / (at - began)))
    return cpu, runqueue


def model_of(processes: Iterable[ProcessFact], counters: Iterable[CounterSample]) -> str:
    """The model's name, from the label that engines put on their counters, else from the command line; "" for none."""
    named = next((c.labels["model_name"] for c in counters if c.labels.get("model_name")), "")
    if named:
        return named
    facts = tuple(processes)
    for flag in _MODEL_FLAGS:
        stated = next((p.flags[flag] for p in facts if p.flags.get(flag)), "")
        if stated:
            return stated
    for fact in facts:
        words = fact.command
        if "serve" in words[:-1] and not (after := words[words.index("serve") + 1]).startswith("-"):
            return after
    return ""
