"""The processes of all files as one Recording: who is who, which sample comes first, how much was understood."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from enginectl.model.observed import (
    Gap,
    ProcessFact,
    ProcessSample,
    Recording,
    Snapshot,
    StatedFacts,
    ThreadSample,
    Understood,
)
from enginectl.read.draft import Draft, merged
from enginectl.read.naming import TITLE_LIMIT, clean, command_of, flags_of, redact
from enginectl.read.remarks import words_of
from enginectl.read.source import Source
from enginectl.read.tokens import FORMAT_NAMES, Layout

MAX_THREADS = 1 << 18
"""Threads that are kept, over all files; more are counted only."""
MAX_PROCESSES = 1 << 16
_FROM_GDB = frozenset({FORMAT_NAMES[Layout.GDB], FORMAT_NAMES[Layout.PYBT]})
_DEATH_ORDER = ("device-error", "collective-timeout", "out-of-memory", "fatal-signal", "exception")
_REMEDIES = {
    "permission": "Dump again with the right to trace (root, or the capability SYS_PTRACE).",
    "no-tool": "Install py-spy where the engine runs, and dump again.",
    "version": "Dump again without native frames, or with a py-spy that knows this Python version.",
    "stopped": "Continue the process, or end the tool that holds it, and dump again.",
    "other": "Dump again and keep the whole output.",
}


class _Merger:
    """Collects drafts; `samples[n]` are the processes of the n-th snapshot."""

    def __init__(self) -> None:
        self.facts: dict[int, ProcessFact] = {}
        self.samples: list[dict[int, ProcessSample]] = []
        self.times: list[str] = []
        self.seen: dict[int, int] = {}
        self.pthreads: dict[int, dict[int, int]] = {}
        self.native: set[tuple[int, int]] = set()
        self.threads = self.frames = 0
        self.invented = 0
        self.redacted = False

    def invent(self) -> int:
        self.invented -= 1
        return self.invented

    def add(self, draft: Draft, pid: int, *, only_described: bool) -> None:
        if pid not in self.facts and len(self.facts) >= MAX_PROCESSES:
            return
        self._describe(draft, pid)
        if draft.pthreads:
            self.pthreads.setdefault(pid, {}).update(draft.pthreads)
        if only_described:
            return
        nth = self.seen.get(pid, -1) + 1
        self.seen[pid] = nth
        if nth == len(self.samples):
            self.samples.append({})
            self.times.append("")
        room = max(0, MAX_THREADS - self.threads)
        if not draft.repeat:
            self.threads += len(draft.threads)
            self.frames += draft.frames
        threads = tuple(draft.threads[:room])
        self.samples[nth][pid] = ProcessSample(pid=pid, threads=_main_first(threads, pid))
        self.times[nth] = self.times[nth] or draft.when
        if draft.formats <= _FROM_GDB:
            self.native.add((nth, pid))

    def join_ids(self) -> None:
        """Threads known by pthread id get the kernel's id, where gdb told both for the same process.

        A gdb dump beside another dump of the same process is the same instant seen from below: the two become one
        sample, so that the difference between the tools is not taken for movement.
        """
        for pid, ids in self.pthreads.items():
            own = [n for n, processes in enumerate(self.samples) if pid in processes]
            native = [n for n in own if (n, pid) in self.native]
            python = [n for n in own if (n, pid) not in self.native]
            pairs = dict(zip(python, native, strict=False))
            for n in python or native:
                rows = [*self.samples[n][pid].threads]
                if n in pairs:
                    rows += self.samples[pairs[n]].pop(pid).threads
                joined = _one_each(rows, ids)
                self.samples[n][pid] = msgspec.structs.replace(self.samples[n][pid], threads=_main_first(joined, pid))
        kept = [n for n, processes in enumerate(self.samples) if processes]
        self.samples, self.times = [self.samples[n] for n in kept], [self.times[n] for n in kept]

    def _describe(self, draft: Draft, pid: int) -> None:
        words, taken = redact(draft.title.split(" "))
        self.redacted = self.redacted or taken
        title = clean(" ".join(words).strip(), TITLE_LIMIT)
        old = self.facts.get(pid, ProcessFact(pid=pid))
        title = title or old.title
        command = command_of(title)
        self.facts[pid] = ProcessFact(
            pid=pid,
            title=title,
            command=command,
            python_version=clean(draft.python) if draft.python else old.python_version,
            ranks={**old.ranks, **draft.ranks},
            flags=flags_of(command),
        )


def _one_each(rows: Sequence[ThreadSample], ids: dict[int, int]) -> list[ThreadSample]:
    """Each thread once, by the kernel's id: Python frames above the native ones of the same thread."""
    found: dict[int, ThreadSample] = {}
    for row in rows:
        tid = ids.get(row.tid, row.tid)
        other = found.get(tid)
        if other is None:
            found[tid] = msgspec.structs.replace(row, tid=tid)
            continue
        python, native = sorted((other, row), key=lambda t: all(f.native for f in t.frames or ()))
        frames = python.frames or ()
        if native.frames and all(f.native for f in native.frames) and not any(f.native for f in frames):
            frames = merged(native.frames, frames)
        found[tid] = msgspec.structs.replace(
            python, tid=tid, name=python.name or native.name, frames=frames or native.frames
        )
    return list(found.values())


def _main_first(threads: Sequence[ThreadSample], pid: int) -> tuple[ThreadSample, ...]:
    """Threads in the order read, but the main thread first when it is known."""
    index = next((i for i, t in enumerate(threads) if t.tid == pid or t.name == "MainThread"), 0)
    return (threads[index], *threads[:index], *threads[index + 1 :]) if index else tuple(threads)


def _seconds(first: str, later: str) -> float | None:
    try:
        return (_time(later) - _time(first)).total_seconds()
    except ValueError:
        return None


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace(",", ".").replace(" ", "T")[:26])


def _snapshots(merger: _Merger) -> tuple[Snapshot, ...]:
    """Snapshots in time order; times come from the log when it tells them, and are otherwise left at the one before."""
    result: list[Snapshot] = []
    offset = 0.0
    first = next((t for t in merger.times if t), "")
    for processes, when in zip(merger.samples, merger.times, strict=True):
        told = _seconds(first, when) if when and first else None
        offset = max(offset, told) if told is not None else offset
        result.append(Snapshot(offset_seconds=offset, taken_at=clean(when), processes=tuple(processes.values())))
    return tuple(result) or (Snapshot(offset_seconds=0.0),)


def _identify(source: Source, merger: _Merger, *, same_process: bool, shared: list[int]) -> Iterable[tuple[Draft, int]]:
    """Drafts with their pid: their own, or an invented one."""
    known = [d.pid for d in source.drafts if d.pid is not None]
    previous: int | None = None
    untitled: dict[tuple[str, str], int] = {}
    for draft in source.drafts:
        pid = draft.pid
        if pid is None and draft.again and previous is not None:
            pid = previous
        if pid is None and same_process:
            if not shared:
                shared.append(known[0] if known else merger.invent())
            pid = shared[0]
        if pid is None:
            key = (draft.title, draft.tags)
            pid = untitled.get(key) if key != ("", "") else None
            pid = pid if pid is not None else merger.invent()
            if key != ("", ""):
                untitled[key] = pid
        elif same_process and not shared:
            shared.append(pid)
        previous = pid
        yield draft, pid


def _without_exceptions(sources: Sequence[Source]) -> bool:
    """Drop tracebacks of exceptions where real stacks were read; tell whether only tracebacks were found."""
    weak = any(d.weak for s in sources for d in s.drafts)
    interrupt = any(d.interrupt for s in sources for d in s.drafts if d.weak)
    strong = any(not d.weak and not d.empty for s in sources for d in s.drafts)
    if strong:
        for source in sources:
            source.drafts = [d for d in source.drafts if not d.weak]
    return weak and not strong and not interrupt


def _stated_words(facts: StatedFacts | None) -> tuple[str, ...]:
    """The class words of the log lines that a facts file quotes."""
    lines = facts.log.lines if facts else ()
    return tuple(word for line in lines for word in words_of(line))


def to_recording(sources: Sequence[Source], *, facts: StatedFacts | None, same_process: bool) -> Recording:
    """All files as one recording. Shape: n files -> 1 recording with at least one snapshot. Errors: none."""
    merger = _Merger()
    shared: list[int] = []
    only_exceptions = _without_exceptions(sources)
    stacked = {d.pid for s in sources for d in s.drafts if not d.empty}
    for source in sources:
        for draft, pid in _identify(source, merger, same_process=same_process, shared=shared):
            merger.add(draft, pid, only_described=draft.empty and pid in stacked)
    merger.join_ids()
    understood = _understood(sources, merger, only_exceptions)
    read = Recording(
        made_by="read",
        processes=tuple(merger.facts.values()),
        snapshots=_snapshots(merger),
        stated=facts,
        understood=understood,
        redactions=("command-line secrets",) if merger.redacted else (),
        gaps=_gaps(sources),
        notes=tuple(dict.fromkeys((*(w for s in sources for w in s.words), *_stated_words(facts)))),
    )
    recordings = [s.recording for s in sources if s.recording is not None]
    return _with_recordings(recordings, read, facts, bool(merger.facts)) if recordings else read


def _understood(sources: Sequence[Source], merger: _Merger, only_exceptions: bool) -> Understood:
    formats = sorted({name for s in sources for d in s.drafts for name in d.formats})
    if any(s.recording is not None for s in sources):
        formats.append("recording")
    deaths = {death for s in sources for death in s.deaths}
    errors = [error for s in sources for _, error in s.tool_errors]
    lines = sum(s.lines for s in sources)
    return Understood(
        formats=tuple(formats),
        processes=len(merger.facts),
        threads=merger.threads,
        frames=merger.frames,
        lines=lines,
        lines_skipped=max(0, lines - sum(s.lines_used for s in sources)),
        torn=sum(s.torn for s in sources),
        tool_error=_clearest(errors) if errors and not merger.threads else None,
        death_notice=next((d for d in _DEATH_ORDER if d in deaths), "exception" if only_exceptions else None),
    )


def _clearest(errors: Sequence[str]) -> str:
    """The error class that says most: a hint about rights is often printed for any failure, so it comes late."""
    return min(errors, key=("no-tool", "stopped", "version", "permission", "other").index)


def _gaps(sources: Sequence[Source]) -> tuple[Gap, ...]:
    seen = dict.fromkeys(pair for s in sources for pair in s.tool_errors)
    return tuple(
        Gap(
            source="stacks" if pid is None else f"stacks of {pid}",
            reason=f"dump failed: {error}",
            remedy=_REMEDIES[error],
        )
        for pid, error in list(seen)[:64]
    )


def _with_recordings(
    recordings: Sequence[Recording], read: Recording, facts: StatedFacts | None, has_text: bool
) -> Recording:
    """Recordings behind each other in time, and text dumps beside them as a last snapshot."""
    first, snapshots, processes = recordings[0], list(recordings[0].snapshots), list(recordings[0].processes)
    for later in [*recordings[1:], *([read] if has_text else [])]:
        end = snapshots[-1].offset_seconds if snapshots else 0.0
        snapshots += [msgspec.structs.replace(s, offset_seconds=end + s.offset_seconds) for s in later.snapshots]
        known = {p.pid for p in processes}
        processes += [p for p in later.processes if p.pid not in known]
    return msgspec.structs.replace(
        first,
        processes=tuple(processes),
        snapshots=tuple(snapshots),
        stated=facts if facts is not None else first.stated,
        understood=read.understood if has_text else first.understood,
        gaps=tuple(dict.fromkeys(gap for r in (*recordings, read) for gap in r.gaps)),
        notes=tuple(dict.fromkeys(note for r in (*recordings, read) for note in r.notes)),
    )
