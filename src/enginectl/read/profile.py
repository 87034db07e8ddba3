"""Profiles (sampled stacks, tables) as a row of instants: shares over the snapshots are shares of the profile."""

from __future__ import annotations

from collections.abc import Sequence

from enginectl.model.observed import Frame, ThreadSample
from enginectl.read.draft import Draft

TICKS = 20
"""Snapshots a profile is drawn on; shares below one half of 1/TICKS are lost."""

_Weighted = Sequence[tuple[tuple[Frame, ...], float]]


def _spread(stacks: _Weighted, whole: float, ticks: int) -> list[tuple[Frame, ...] | None]:
    """For each tick the stack seen there; None where the thread was not seen running."""
    result: list[tuple[Frame, ...] | None] = []
    index, reached = 0, 0.0
    for tick in range(ticks):
        at = (tick + 0.5) / ticks * whole
        while index < len(stacks) and reached + stacks[index][1] <= at:
            reached += stacks[index][1]
            index += 1
        result.append(stacks[index][0] if index < len(stacks) else None)
    return result


def _by_root(draft: Draft) -> dict[int, list[tuple[tuple[Frame, ...], float]]]:
    """Stacks without a thread label, grouped by their outermost frame: one group is taken for one thread."""
    groups: dict[tuple[str, str], list[tuple[tuple[Frame, ...], float]]] = {}
    for frames, weight in draft.stacks.items():
        root = (frames[-1].function, frames[-1].file) if frames else ("", "")
        groups.setdefault(root, []).append((frames, weight))
    return {-1 - number: group for number, group in enumerate(groups.values())}


def _packed(draft: Draft) -> dict[int, list[tuple[tuple[Frame, ...], float]]]:
    """Rows of a table, packed into as few threads as their own times allow: one thread cannot exceed the whole time."""
    whole = max((row.total_seconds for row in draft.rows), default=0.0)
    lanes: list[tuple[float, list[tuple[tuple[Frame, ...], float]]]] = []
    for row in sorted(draft.rows, key=lambda r: -r.own_seconds):
        share = row.own_seconds / whole if whole > 0 else row.own_ratio
        if share <= 0:
            continue
        place = next((i for i, (used, _) in enumerate(lanes[:64]) if used + share <= 1.01), None)
        if place is None:
            lanes.append((0.0, []))
            place = len(lanes) - 1
        used, rows = lanes[place]
        rows.append(((row.frame,), share))
        lanes[place] = (used + share, rows)
    return {-1 - number: rows for number, (_, rows) in enumerate(lanes[:64])}


def expand(draft: Draft) -> list[Draft]:
    """A draft with a profile as successive drafts; a draft without one as itself."""
    if draft.rows and not draft.stacks and not draft.thread_stacks:
        groups, whole = _packed(draft), 1.0
    elif draft.stacks or draft.thread_stacks:
        groups = {**draft.thread_stacks, **_by_root(draft)}
        whole = max(sum(weight for _, weight in group) for group in groups.values())
    else:
        return [draft]
    if whole <= 0 or not groups:
        return [draft]
    spread = {tid: _spread(group, whole, TICKS) for tid, group in groups.items()}
    result = []
    for tick in range(TICKS):
        threads = []
        for tid, seen in spread.items():
            frames = seen[tick]
            name = draft.thread_names.get(tid)
            threads.append(ThreadSample(tid=tid, name=name, active=frames is not None, frames=frames))
        result.append(
            Draft(
                pid=draft.pid, title=draft.title, python=draft.python, tags=draft.tags, when=draft.when,
                threads=threads + (draft.threads if tick == 0 else []), formats=draft.formats, again=tick > 0,
                repeat=tick > 0,
                frames=sum(len(t.frames or ()) for t in threads),
            )
        )  # fmt: skip
    return result
