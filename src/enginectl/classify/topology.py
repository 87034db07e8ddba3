"""Who waits for whom: edges between threads, the blame chain, cycles, and ranks that differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from enginectl.classify.identify import has_frame, kind_of
from enginectl.classify.match import last_name
from enginectl.classify.views import process_views
from enginectl.knowledge.loader import Knowledge
from enginectl.model.classified import Edge, ProcessView, RankBucket, ThreadView, Topology
from enginectl.model.observed import Recording

Node = tuple[int, int]

CHAIN_START = ("frontend-loop", "output", "ipc-out", "engine-loop", "worker-loop", "ipc", "ipc-in")
"""Where the blame chain begins: the thread nearest to the client that was seen."""
ENDED = frozenset({"T", "t", "X", "Z"})
"""States of a process that runs nothing: stopped, traced, gone, zombie."""
HOLDING = frozenset({"lock", "ipc-send", "peer", "io"})
"""Classes of waits that end only when the other side acts; a cycle of these is a deadlock."""


def _candidates(views: Sequence[ProcessView], waiter: ThreadView, home: ProcessView) -> Iterable[ThreadView]:
    """Threads that could act for `waiter`, nearest first: own process, parent and children, the same tree.

    Of equally near processes those first that share memory with its own: rings between engine and worker are such.
    """
    target = waiter.waits_for or ""
    process_role, _, thread_role = target.rpartition(":")
    kin = [p for p in views if p.pid == home.parent_pid or p.parent_pid == home.pid]
    siblings = [p for p in views if p.parent_pid == home.parent_pid and p.pid != home.pid and p not in kin]
    others = [p for p in views if p is not home and p not in kin and p not in siblings]
    order = [home, *(p for group in (kin, siblings, others) for p in _nearest_first(group, home))]
    for process in order:
        if process_role and process.role != process_role:
            continue
        for thread in process.threads:
            same = thread.role == thread_role or (thread_role == "ipc" and thread.role in ("ipc-in", "ipc-out"))
            if same and (thread.pid, thread.tid) != (waiter.pid, waiter.tid):
                yield thread


def _nearest_first(processes: Sequence[ProcessView], home: ProcessView) -> list[ProcessView]:
    """As `_ended_first`, and of the others first those that share memory with `home`."""
    return _ended_first(sorted(processes, key=lambda p: p.shared_segments.isdisjoint(home.shared_segments)))


def _ended_first(processes: Sequence[ProcessView]) -> list[ProcessView]:
    """Among equally near processes the one that cannot act is who is waited for."""
    return sorted(processes, key=lambda p: p.os_state not in ENDED)


def _late_rank(views: Sequence[ProcessView], waiter: ThreadView, home: ProcessView) -> ThreadView | None:
    """The rank beside `waiter` that is not in a collective, or cannot act: who the collective waits for."""
    peers = [p for p in views if p.role == home.role and p.parent_pid == home.parent_pid and p.pid != home.pid]
    for process in _ended_first(peers):
        for thread in process.threads:
            if thread.role == waiter.role and (process.os_state in ENDED or thread.wait_class != "collective"):
                return thread
    return None


def edges_of(views: Sequence[ProcessView]) -> tuple[Edge, ...]:
    """One edge for each thread whose place names a role that must act next."""
    edges: list[Edge] = []
    for process in views:
        if process.os_state in ENDED:
            # where it stands does not matter: it waits for whoever stopped it
            continue
        for thread in process.threads:
            late = _late_rank(views, thread, process) if thread.wait_class == "collective" else None
            if late is not None:
                edges.append(
                    Edge(
                        waiter=(thread.pid, thread.tid),
                        actor=(late.pid, late.tid),
                        actor_role=f"{process.role}:{late.role}",
                        channel="collective",
                        wait_id=thread.wait_id or "",
                    )
                )
                continue
            if not thread.waits_for:
                continue
            actor = next(iter(_candidates(views, thread, process)), None)
            edges.append(
                Edge(
                    waiter=(thread.pid, thread.tid),
                    actor=(actor.pid, actor.tid) if actor else None,
                    actor_role=thread.waits_for,
                    channel=thread.through or "",
                    wait_id=thread.wait_id or "",
                )
            )
    return tuple(edges)


def walk(start: Node, edges: Mapping[Node, Edge]) -> tuple[Node, ...]:
    """From `start` along the edges to a thread that waits for nobody visible, or back into the path."""
    path = [start]
    while (edge := edges.get(path[-1])) is not None and edge.actor is not None:
        if edge.actor in path:
            break
        path.append(edge.actor)
    return tuple(path)


def cycles_of(threads: Mapping[Node, ThreadView], edges: Mapping[Node, Edge]) -> tuple[tuple[Node, ...], ...]:
    """Every cycle of edges, each once, starting at its smallest node. Idle places do not hold anybody."""
    found: set[tuple[Node, ...]] = set()
    for start in edges:
        path: list[Node] = []
        node: Node | None = start
        while node is not None and node not in path:
            path.append(node)
            edge = edges.get(node)
            node = edge.actor if edge else None
        if node is not None:
            cycle = path[path.index(node) :]
            if len(cycle) > 1 and all(threads[n].wait_class in HOLDING for n in cycle):
                lowest = cycle.index(min(cycle))
                found.add(tuple(cycle[lowest:] + cycle[:lowest]))
    return tuple(sorted(found))


def buckets_of(views: Sequence[ProcessView]) -> tuple[RankBucket, ...]:
    """Threads of equal role in processes of equal role, grouped by equal stacks; biggest group first."""
    groups: dict[tuple[str, str, str | None, str, tuple[str, ...]], list[Node]] = {}
    peers: dict[str, int] = {}
    for process in views:
        peers[process.role] = peers.get(process.role, 0) + 1
    for process in views:
        if peers[process.role] < 2:
            continue
        for thread in process.threads:
            if thread.role not in ("engine-loop", "worker-loop"):
                continue
            signature = tuple(f"{f.file.rsplit('/', 1)[-1]}:{last_name(f.function)}" for f in thread.frames)
            key = (process.role, thread.role, thread.wait_id, thread.wait_class, signature)
            groups.setdefault(key, []).append((thread.pid, thread.tid))
    rows = [
        RankBucket(role=role, wait_id=wait, wait_class=cls, signature=signature, members=tuple(members))
        for (_, role, wait, cls, signature), members in groups.items()
    ]
    return tuple(sorted(rows, key=lambda b: -len(b.members)))


def _missing(views: Sequence[ProcessView], knowledge: Knowledge) -> tuple[tuple[int, str], ...]:
    """Required roles that no thread of a process holds although its stacks were read.

    Several kinds may share a process role (an older engine, an engine inside the script): those whose frames are on
    the stacks count, and a role is missing only if each of them requires it.
    """
    missing: list[tuple[int, str]] = []
    for process in views:
        if not process.stacks_read or not process.threads:
            continue
        kinds = kind_of(knowledge, process.engine, process.role)
        shown = [k for k in kinds if any(has_frame(k.frames, t.frames) for t in process.threads)] or list(kinds)
        if not shown:
            continue
        required = set.intersection(*({row.role for row in kind.threads if row.required} for kind in shown))
        held = {t.role for t in process.threads}
        missing += [(process.pid, role) for role in sorted(required - held)]
    return tuple(missing)


def _start(views: Sequence[ProcessView]) -> Node | None:
    for role in CHAIN_START:
        threads = [t for p in views for t in p.threads if t.role == role]
        if threads:
            best = max(threads, key=lambda t: (t.waits_for is not None, t.wait_class != "idle"))
            return (best.pid, best.tid)
    return None


def topology(recording: Recording, knowledge: Knowledge) -> Topology:
    """The whole picture of one recording.

    Errors: none.  Source: stacks matched against knowledge/waits, process facts from /proc.
    """
    views = process_views(recording, knowledge)
    threads = {(t.pid, t.tid): t for p in views for t in p.threads}
    edges = edges_of(views)
    by_waiter = {edge.waiter: edge for edge in edges}
    start = _start(views)
    return Topology(
        processes=views,
        edges=edges,
        chain=walk(start, by_waiter) if start else (),
        cycles=cycles_of(threads, by_waiter),
        buckets=buckets_of(views),
        missing_roles=_missing(views, knowledge),
    )
