"""Stacks folded for flame graphs: `process;thread;outer;...;inner count`, one line per distinct stack."""

from __future__ import annotations

from collections import Counter

from enginectl.model.observed import Frame, ProcessFact, ProcessSample, Recording, ThreadSample
from enginectl.render import words


def render_folded(recording: Recording) -> str:
    """Folded stacks as py-spy writes them, commonest first; the count is the number of snapshots.

    Shape: all stacks of all snapshots -> one line per distinct stack; "" when there is none. Errors: none.
    """
    facts = {fact.pid: fact for fact in recording.processes}
    counts: Counter[str] = Counter()
    for snapshot in recording.snapshots:
        for sample in snapshot.processes:
            head = _process(sample, facts.get(sample.pid))
            for thread in sample.threads:
                if thread.frames:
                    counts[";".join([head, _thread(thread), *map(_frame, reversed(thread.frames))])] += 1
    return "".join(f"{stack} {count}\n" for stack, count in counts.most_common())


def _safe(text: str) -> str:
    """Text that cannot end its field."""
    return words.clean(text).replace(";", ",")


def _process(sample: ProcessSample, fact: ProcessFact | None) -> str:
    title = _safe(fact.title) if fact else ""
    return f'process {sample.pid}:"{title}"'


def _thread(thread: ThreadSample) -> str:
    return f"thread ({thread.tid}): {_safe(thread.name or '')}".rstrip()


def _frame(frame: Frame) -> str:
    place = _safe(frame.file) + (f":{frame.line}" if frame.line else "")
    return f"{_safe(frame.function)} ({place})"
