"""All samples of one thread over the window -> one `ThreadView`: its role, its place, its clock."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from enginectl.classify import identify
from enginectl.classify.match import Match, Matcher
from enginectl.classify.matchers import matcher_for, telling_places
from enginectl.classify.promote import promote
from enginectl.knowledge.loader import Knowledge
from enginectl.knowledge.schema import ProcessKind, ThreadRole
from enginectl.model.classified import Activity, ProcessView, ThreadView
from enginectl.model.observed import (
    Frame,
    ProcessFact,
    ProcessSample,
    Recording,
    StatedFacts,
    StatedProcess,
    ThreadSample,
)

RUNNING_CLASSES = frozenset({"cpu", "startup"})
BLOCKED_CLASSES = frozenset({"idle", "peer", "lock", "io", "timer", "ipc-send", "shutdown"})
MOVED_CPU_RATIO = 0.02
"""Below this share of a core a thread counts as not moving, if its stack stands still as well."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of one thread, matched."""

    at: float
    sample: ThreadSample
    match: Match | None
    others_hold_gil: bool


def os_state_of(sample: ThreadSample) -> str | None:
    """The thread's OS state, or what the stack reader's active flag says of it."""
    if sample.os_state is not None:
        return sample.os_state
    if sample.active is None:
        return None
    return "R" if sample.active else "S"


def waits_for_gil(look: Look) -> bool:
    """Whether this sample shows a thread that wants the GIL: asleep in ordinary Python code, another one holds it."""
    sample = look.sample
    if not sample.frames or sample.holds_gil or not look.others_hold_gil or os_state_of(sample) != "S":
        return False
    wait_class = look.match.row.wait_class if look.match else "unknown"
    return wait_class in ("cpu", "unknown", "startup") and not (sample.frames and sample.frames[0].native)


NATIVE_KINDS = frozenset(
    {"forward", "sample", "device-sync", "launch", "collective", "logprobs", "pool", "tokenize", "detokenize",
     "compile", "weights", "warm-up", "profile", "graph-capture", "kv-transfer", "encode", "decode"}
)  # fmt: skip
"""Places that call native code for long: asleep there says nothing about a Python lock."""


def blocked_on_lock(looks: Sequence[Look], cpu: float | None, stack_moved: bool | None) -> bool:
    """Whether the thread slept in a futex at one ordinary Python line, while nobody held the GIL.

    `with lock:` leaves no frame of its own: this is what a lock that never comes looks like.
    """
    if stack_moved is not False or cpu is None or cpu > MOVED_CPU_RATIO:
        return False
    for look in looks:
        row = look.match.row if look.match else None
        frames = look.sample.frames
        if frames and frames[0].native:
            continue
        if not frames or look.others_hold_gil or look.sample.holds_gil:
            return False
        if os_state_of(look.sample) != "S" or not (look.sample.wchan or "").startswith("futex"):
            return False
        if row is not None and (row.wait_class != "cpu" or row.kind in NATIVE_KINDS):
            return False
    return True


def _delta(looks: Sequence[Look], field: str) -> float | None:
    """Growth per second of a counter between the first and the last sample that carry it; None with fewer."""
    known = [(look.at, getattr(look.sample, field)) for look in looks if getattr(look.sample, field) is not None]
    if len(known) < 2 or known[-1][0] - known[0][0] <= 0:
        return None
    return max(0.0, float(known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0]))


def _ratios(values: Sequence[str]) -> dict[str, float]:
    counts = Counter(values)
    return {key: count / len(values) for key, count in counts.most_common()}


def _is_running(look: Look) -> bool:
    """Whether the sample shows work: a running class, or an unknown place of a runnable thread."""
    wait_class = look.match.row.wait_class if look.match else "unknown"
    if wait_class in RUNNING_CLASSES:
        return not waits_for_gil(look)
    if wait_class == "unknown":
        return bool(look.sample.holds_gil) or os_state_of(look.sample) == "R"
    return False


def _thread_role(kinds: Sequence[ProcessKind], pid: int, looks: Sequence[Look]) -> str:
    """The role of a thread: by its process's table (frames before names), then by the place where it stands.

    Without any stack, the main thread is known by its id and the others by the kernel's name for them.
    """
    seen = any(look.sample.frames is not None for look in looks)
    name = next((look.sample.name for look in looks if look.sample.name), "") or ""
    if not seen and looks[0].sample.tid == pid:
        name = "MainThread"
    frames = next((look.sample.frames for look in reversed(looks) if look.sample.frames), ())
    rows: list[ThreadRole] = [row for kind in kinds for row in kind.threads]
    for row in rows:
        if row.frames and frames and identify.has_frame(row.frames, frames):
            if not row.name or re.search(row.name, name) or not name:
                return row.role
    for look in reversed(looks):
        if look.match and look.match.row.role:
            return look.match.row.role
    for row in rows:
        telling = not row.frames or not seen or not _GENERIC_NAME.match(name)
        if row.name and name and telling and re.search(row.name, name):
            return row.role
    return "helper"


_GENERIC_NAME = re.compile(r"(?:MainThread|Thread-\d+|ThreadPoolExecutor-\d+_\d+|Dummy-\d+)$")
"""Names that any program uses: only frames tell what such a thread is."""


def _dominant(looks: Sequence[Look]) -> Look:
    """The sample that stands for the window: the commonest place, the latest of it."""
    counts = Counter(look.match.row.id if look.match else None for look in looks)
    best = max(counts.values())
    for look in reversed(looks):
        if counts[look.match.row.id if look.match else None] == best:
            return look
    raise AssertionError("no samples")


WORKING_SHARE = 0.2
"""From this share of samples on, a thread that spins between two pieces of work counts as working."""


def _at_work(looks: Sequence[Look], cpu: float | None) -> list[Look]:
    """The samples at work of a thread that burns a core and mostly polls for its next order; empty when it rests.

    A thread that spins is caught at its poll more often than it is there: while its partner is read, or is kept
    from a core by the reading, it has nothing to do.
    """
    working = [look for look in looks if look.match and look.match.row.wait_class == "cpu"]
    polls = sum(look.match is not None and look.match.row.wait_class == "idle" for look in looks)
    hot = cpu is not None and cpu >= 0.5
    return working if hot and polls and len(working) >= max(2.0, WORKING_SHARE * len(looks)) else []


def _lines(look: Look) -> tuple[tuple[str, str, int | None], ...]:
    """The Python frames with their lines: one native look among others is no movement."""
    return tuple((f.function, f.file, f.line) for f in look.sample.frames or () if not f.native)


def thread_view(pid: int, tid: int, looks: Sequence[Look], role: str, stated_cpu: float | None) -> ThreadView:
    """One view from all looks at one thread (at least one)."""
    seen = [look for look in looks if look.sample.frames is not None] or list(looks)
    cpu = _delta(looks, "cpu_seconds") if stated_cpu is None else stated_cpu
    top = _dominant(_at_work(seen, cpu) or seen)
    row = top.match.row if top.match else None
    frames = top.sample.frames or ()
    switches = _delta(looks, "voluntary_switches")
    stack_moved = len({_lines(look) for look in seen}) > 1 if len(seen) > 1 else None
    moved: bool | None = None
    if stack_moved is not None:
        moved = stack_moved or (cpu is not None and cpu > MOVED_CPU_RATIO)
    locked = blocked_on_lock(seen, cpu, stack_moved)
    gil = [look.sample.holds_gil for look in seen if look.sample.holds_gil is not None]
    waits_gil = [waits_for_gil(look) for look in seen]
    with_stack = [look for look in seen if look.sample.frames is not None]
    classes = ["gil" if waits_for_gil(x) else x.match.row.wait_class if x.match else "unknown" for x in with_stack]
    running = [_is_running(look) for look in with_stack]
    if moved is False:
        running = [False] * len(with_stack)
    if locked:
        classes, running = ["lock"] * len(with_stack), [False] * len(with_stack)
    running_ratio = sum(running) / len(running) if running else None
    return ThreadView(
        pid=pid,
        tid=tid,
        name=next((look.sample.name for look in reversed(looks) if look.sample.name), "") or "",
        role=role,
        wait_id=row.id if row else None,
        wait_class="lock" if locked else row.wait_class if row else "unknown",
        meaning=f"Waiting for a lock in {_python_leaf(frames)}." if locked else row.meaning if row else "",
        waits_for=row.waits_for if row else None,
        through=row.through if row else None,
        activity=_activity(running_ratio),
        frames=frames,
        matched=tuple(frames[i] for i in top.match.positions) if top.match else (),
        samples=len(with_stack),
        wait_ratios=_ratios([x.match.row.id if x.match else "" for x in with_stack]) if with_stack else {},
        class_ratios=_ratios(classes) if classes else {},
        running_ratio=running_ratio,
        cpu_ratio=cpu,
        gil_ratio=sum(map(bool, gil)) / len(gil) if gil else None,
        gil_wait_ratio=sum(waits_gil) / len(waits_gil) if gil else None,
        runqueue_ratio=_delta(looks, "runqueue_seconds"),
        switches_per_second=switches,
        moved=moved,
        stack_moved=stack_moved,
        os_state=os_state_of(looks[-1].sample),
        wchan=looks[-1].sample.wchan,
    )


def _python_leaf(frames: Sequence[Frame]) -> str:
    return next((f.function for f in frames if not f.native), "native code")


def _activity(running_ratio: float | None) -> Activity:
    if running_ratio is None:
        return Activity.UNKNOWN
    return Activity.RUNNING if running_ratio >= 0.5 else Activity.WAITING


def _looks(
    matcher: Matcher, role: str | None, timeline: Sequence[tuple[float, ProcessSample]]
) -> dict[int, list[Look]]:
    """All matched samples of one process, per thread id."""
    looks: dict[int, list[Look]] = {}
    for at, sample in timeline:
        holders = {t.tid for t in sample.threads if t.holds_gil}
        for thread in sample.threads:
            match = None
            if thread.frames:
                match = matcher.match(thread.frames, role=role, os_state=os_state_of(thread))
            others = bool(holders - {thread.tid})
            looks.setdefault(thread.tid, []).append(Look(at=at, sample=thread, match=match, others_hold_gil=others))
    return looks


def _stated_cpu(stated: StatedFacts | None, pid: int, tid: int) -> float | None:
    for row in stated.thread if stated else ():
        if row.tid == tid and row.pid in (None, pid):
            return row.cpu_ratio
    return None


def process_view(
    knowledge: Knowledge,
    fact: ProcessFact,
    timeline: Sequence[tuple[float, ProcessSample]],
    stated: StatedFacts | None,
    *,
    whole: bool,
) -> ProcessView:
    """One process over the window.

    Shape: `timeline` holds (offset in seconds, sample), oldest first, at least one; `whole` as in `promote`.
    """
    engine, role = fact.engine, fact.role
    stacks: list[tuple[Frame, ...]] = [t.frames for _, s in timeline[-1:] for t in s.threads if t.frames]
    told = stated.engine if stated else None
    only = engine or (told if told in knowledge.engines else None)
    known = [e for e in knowledge.engines.values() if only in (None, e.engine)]
    named = identify.by_name(known, fact.title, fact.command)
    # a command line is inherited by forked children and the same for a launcher: stacks know better
    found = identify.by_stacks(known, stacks) if named is None or named.by == "command" else None
    if engine is None or role is None:
        identity = found or named
        if identity:
            engine, role = engine or identity.engine, role or identity.role
    elif found and named and found.engine == engine and role == named.role:
        role = found.role
    kinds = identify.kind_of(knowledge, engine, role)
    looks = _looks(matcher_for(knowledge, engine, told), role, timeline)
    views = [
        thread_view(fact.pid, tid, rows, _thread_role(kinds, fact.pid, rows), _stated_cpu(stated, fact.pid, tid))
        for tid, rows in looks.items()
    ]
    if role != "helper" or engine is None or not whole:
        kind_by_wait = {row.id: row.kind for rows in knowledge.waits.values() for row in rows}
        views = promote(views, role, kind_by_wait, whole)
    last = timeline[-1][1]
    cpu = [(at, s.cpu_seconds) for at, s in timeline if s.cpu_seconds is not None]
    rss = [(at, s.rss_bytes) for at, s in timeline if s.rss_bytes is not None]
    stated_process = next((p for p in stated.process if p.pid == fact.pid), None) if stated else None
    shown_role = role if role and role != "helper" else _role_from_threads(views)
    return ProcessView(
        pid=fact.pid,
        role=shown_role,
        title=fact.title,
        engine=engine or _engine_from_waits(views, knowledge) or (told if shown_role != "helper" else None),
        engine_version=fact.engine_version or (stated.engine_version if stated else None),
        python_version=fact.python_version or (stated.python_version if stated else None),
        ranks=fact.ranks or identify.ranks_of(fact.title) or _stated_rank(stated_process),
        parent_pid=fact.parent_pid,
        os_state=(stated_process.os_state if stated_process else None) or last.os_state,
        stopped=_stopped([s.os_state for _, s in timeline], stated_process.os_state if stated_process else None),
        tracer_pid=last.tracer_pid,
        cpu_ratio=_growth(cpu) if len(cpu) > 1 else (stated_process.cpu_ratio if stated_process else None),
        rss_growth_bytes_per_second=_growth(rss),
        threads=tuple(sorted(views, key=lambda v: (v.tid != fact.pid, v.tid))),
        shared_segments=frozenset(name for _, s in timeline for name in s.shared_segments),
        stacks_read=any(t.frames is not None for _, s in timeline for t in s.threads),
    )


def _stated_rank(stated: StatedProcess | None) -> dict[str, int]:
    return {"rank": stated.rank} if stated and stated.rank is not None else {}


STOPPED_SAMPLES = 3
"""A tracer of some milliseconds is another observer; this many samples in a row are somebody's stop."""


def _stopped(states: Sequence[str | None], stated: str | None) -> bool:
    if stated is not None:
        return stated in ("T", "t")
    return all(state in ("T", "t") for state in states[-STOPPED_SAMPLES:])


def _growth(points: Sequence[tuple[float, float | int]]) -> float | None:
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return None
    return float(points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])


_ROLE_HOME = {
    "engine-loop": "engine-core",
    "worker-loop": "worker",
    "frontend-loop": "frontend",
}


def _role_from_threads(views: Sequence[ThreadView]) -> str:
    """The process role that its threads prove when neither title nor outer frames did."""
    for thread_role, process_role in _ROLE_HOME.items():
        if any(v.role == thread_role for v in views):
            return process_role
    return "helper"


def _engine_from_waits(views: Sequence[ThreadView], knowledge: Knowledge) -> str | None:
    telling = telling_places(knowledge)
    stems = Counter(v.wait_id.partition(".")[0] for v in views if v.wait_id in telling)
    return next((stem for stem, _ in stems.most_common() if stem in knowledge.engines), None)


def timelines(recording: Recording) -> dict[int, list[tuple[float, ProcessSample]]]:
    """Per pid, all its samples with their offsets in seconds."""
    result: dict[int, list[tuple[float, ProcessSample]]] = {}
    for snapshot in recording.snapshots:
        for sample in snapshot.processes:
            result.setdefault(sample.pid, []).append((snapshot.offset_seconds, sample))
    return result


def process_views(recording: Recording, knowledge: Knowledge) -> tuple[ProcessView, ...]:
    """Every process of the recording that was seen at least once."""
    seen = timelines(recording)
    facts = {fact.pid: fact for fact in recording.processes}
    return tuple(
        process_view(
            knowledge,
            facts.get(pid, ProcessFact(pid=pid)),
            timeline,
            recording.stated,
            whole=recording.made_by == "observe",
        )
        for pid, timeline in seen.items()
    )
