"""The clock of the collectives: which rank has launched fewer or more of them than its peers, and for how long."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginectl.model.observed import Communicator, CommunicatorRank, Recording, Snapshot


class OddRank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that stands apart from its group. `behind` counts launched collectives; below zero it is ahead.

    `silent` says that its process did not answer; then nothing is known of its count. `seconds` is how long this has
    been so, 0 after a single look.
    """

    communicator: str
    rank: int | None
    pid: int | None
    operation: str = ""
    behind: int = 0
    silent: bool = False
    seconds: float = 0.0

    def words(self, alike: int = 1) -> str:
        """The rank and how it differs; `alike` counts the ranks that differ in this way."""
        name = "a rank" if self.rank is None else f"rank {self.rank}"
        name += f" (pid {self.pid})" if self.pid is not None else ""
        name += f" and {alike - 1} more" if alike > 1 else ""
        if self.silent:
            return f"{name} does not answer its peers"
        more = "fewer" if self.behind > 0 else "more"
        kind = "collectives" if self.operation == "collective" else f"{self.operation} collectives"
        return f"{name} has launched {abs(self.behind)} {more} {kind} than its peers"


class CollectiveClock(msgspec.Struct, frozen=True, kw_only=True):
    """`ranks` is how many ranks gave their counts; `odd` those that stand apart, the odd one of most members first."""

    ranks: int = 0
    odd: tuple[OddRank, ...] = ()


def collective_clock(recording: Recording) -> CollectiveClock | None:
    """What the newest counts of collectives tell; None when there are none."""
    stated = _stated(recording)
    if stated is not None:
        return stated
    looks = [s for s in recording.snapshots if s.communicators is not None]
    if not looks:
        return None
    newest = looks[-1].communicators or ()
    odd = [each for group in newest for each in _odd(group, _still_for(group, looks))]
    known = sum(rank.members for group in newest for rank in group.ranks if rank.collectives)
    return CollectiveClock(ranks=known, odd=tuple(odd))


def _stated(recording: Recording) -> CollectiveClock | None:
    rows = [p for p in (recording.stated.process if recording.stated else ()) if p.collective_sequence is not None]
    if recording.stated is None or not rows:
        return None
    progress = recording.stated.progress
    seconds = max(progress.stuck_seconds or 0.0, progress.tokens_frozen_seconds or 0.0)
    ranks = tuple(
        CommunicatorRank(rank=p.rank, pid=p.pid, collectives={"collective": p.collective_sequence or 0}) for p in rows
    )
    group = Communicator(name="stated", size=rows[0].ranks, ranks=ranks)
    return CollectiveClock(ranks=len(rows), odd=tuple(_odd(group, seconds)))


def _still_for(group: Communicator, looks: Sequence[Snapshot]) -> float:
    """Seconds over which the group has stood as it stands now."""
    began = looks[-1].offset_seconds
    for look in reversed(looks):
        if group not in (look.communicators or ()):
            break
        began = look.offset_seconds
    return looks[-1].offset_seconds - began


def _odd(group: Communicator, seconds: float) -> list[OddRank]:
    """Ranks that do not answer; else the smaller side of the operation whose counts differ in the fewest ranks.

    Launched collectives run ahead of executed ones, but a rank that never enters one has launched fewer: it is behind.
    When most are behind, the few ahead are the odd ones.
    """
    odd = [
        OddRank(communicator=group.name, rank=r.rank, pid=r.pid, silent=True, seconds=seconds)
        for r in group.ranks
        if r.state in ("silent", "dead")
    ]
    if odd:
        return odd
    sides: list[tuple[int, str, int, list[CommunicatorRank]]] = []
    for operation in dict.fromkeys(name for r in group.ranks for name in r.collectives):
        told = [r for r in group.ranks if operation in r.collectives and r.state == "running"]
        counts = {r.collectives[operation] for r in told}
        if len(counts) < 2 or operation in ("Send", "Recv", "SendRecv"):
            continue
        least = min(counts)
        behind = [r for r in told if r.collectives[operation] == least]
        ahead = [r for r in told if r.collectives[operation] != least]
        few = min(behind, ahead, key=lambda side: sum(r.members for r in side))
        peers = ahead if few is behind else behind
        usual = max(peers, key=lambda r: r.members).collectives[operation]
        sides.append((sum(r.members for r in few), operation, usual, few))
    if not sides:
        return []
    _, operation, usual, few = min(sides, key=lambda side: side[0])
    return [
        OddRank(
            communicator=group.name,
            rank=r.rank,
            pid=r.pid,
            operation=operation,
            behind=usual - r.collectives[operation],
            seconds=seconds,
        )
        for r in few
    ]
