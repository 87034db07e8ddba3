"""The clock of the collectives: which ranks of a group stand apart from their peers, and for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from enginectl.model.observed import Communicator, CommunicatorRank, Recording, Snapshot


class Apart(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks of one communicator that stand apart from the others, the one that is furthest behind first.

    `silent` ranks did not answer; of the others `behind` is how many collectives (`operation`) the first has launched
    fewer than most of its peers, below zero when it is ahead. `seconds` is for how long the whole group has stood
    like this, 0 after a single look.
    """

    ranks: tuple[CommunicatorRank, ...]
    silent: bool = False
    operation: str = ""
    behind: int = 0
    seconds: float = 0.0

    @property
    def members(self) -> int:
        """How many ranks stand apart."""
        return sum(rank.members for rank in self.ranks)

    def words(self) -> str:
        """The first rank and how it differs."""
        first = self.ranks[0]
        name = f"rank {first.rank}" if first.rank is not None else f"{first.members} ranks"
        name += f" (pid {first.pid})" if first.pid is not None else ""
        others = self.members - first.members
        name += f" and {others} more" if others else ""
        many = self.members > 1
        if self.silent:
            return f"{name} {'do' if many else 'does'} not answer"
        more = "fewer" if self.behind > 0 else "more"
        by = f"{abs(self.behind)}" if not others else f"up to {abs(self.behind)}"
        kind = "collectives" if self.operation == STATED else f"{self.operation} collectives"
        return f"{name} {'have' if many else 'has'} launched {by} {more} {kind} than the others"


STATED = "collective"


class CollectiveClock(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest counts tell: the group that has stood apart for longest, None when no group does."""

    apart: Apart | None = None


def collective_clock(recording: Recording) -> CollectiveClock | None:
    """What the newest counts of collectives tell; None when there are none, or none that can be compared."""
    stated = _stated(recording)
    if stated is not None:
        return CollectiveClock(apart=_apart(*stated))
    looks = [s for s in recording.snapshots if s.communicators is not None]
    if not looks:
        return None
    groups = [_apart(group, _still_for(group, looks)) for group in looks[-1].communicators or ()]
    known = [each for each in groups if each is not None]
    return CollectiveClock(apart=max(known, key=lambda a: (a.seconds, -a.members), default=None))


def _stated(recording: Recording) -> tuple[Communicator, float] | None:
    """The stated sequences as one group; None when they cannot be of one group, or are fewer than two."""
    if recording.stated is None:
        return None
    rows = [p for p in recording.stated.process if p.collective_sequence is not None]
    ranks = [p.rank for p in rows if p.rank is not None]
    sizes = {p.ranks for p in rows if p.ranks is not None}
    if len(rows) < 2 or len(set(ranks)) < len(ranks) or len(sizes) > 1 or any(size < len(rows) for size in sizes):
        return None
    progress = recording.stated.progress
    members = tuple(
        CommunicatorRank(rank=p.rank, pid=p.pid, collectives={STATED: p.collective_sequence or 0}) for p in rows
    )
    seconds = max(progress.stuck_seconds or 0.0, progress.tokens_frozen_seconds or 0.0)
    return Communicator(name="stated", size=max(sizes, default=None), ranks=members), seconds


def _still_for(group: Communicator, looks: Sequence[Snapshot]) -> float:
    """Seconds over which the group has stood as it stands now."""
    began = looks[-1].offset_seconds
    for look in reversed(looks):
        if group not in (look.communicators or ()):
            break
        began = look.offset_seconds
    return looks[-1].offset_seconds - began


def _apart(group: Communicator, seconds: float) -> Apart | None:
    """Ranks that do not answer; else those whose count of one operation differs from that of most ranks.

    Launched collectives run ahead of executed ones, but a rank that never enters one has launched fewer. Of the
    operations that differ, the one in which fewest ranks do counts; of two halves, the one behind stands apart.
    """
    silent = tuple(r for r in group.ranks if r.state in ("silent", "dead"))
    if silent:
        return Apart(ranks=silent, silent=True, seconds=seconds)
    found: list[Apart] = []
    for operation in dict.fromkeys(name for r in group.ranks for name in r.collectives):
        told = [r for r in group.ranks if operation in r.collectives and r.state == "running"]
        counts: Counter[int] = Counter()
        for rank in told:
            counts[rank.collectives[operation]] += rank.members
        if len(counts) < 2 or operation in ("Send", "Recv", "SendRecv"):
            continue
        usual = max(counts, key=lambda count: (counts[count], count))
        odd = sorted((r for r in told if r.collectives[operation] != usual), key=lambda r: r.collectives[operation])
        behind = usual - odd[0].collectives[operation]
        if behind > 0:  # those ahead of the rest wait for whoever is behind
            odd = [r for r in odd if r.collectives[operation] < usual]
        found.append(Apart(ranks=tuple(odd), operation=operation, behind=behind, seconds=seconds))
    return min(found, key=lambda a: a.members, default=None)
