"""Ray actors of an engine: they live below the raylet, so the process tree does not lead to them; their calls do."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from enginectl.observe.fds import same_namespace
from enginectl.observe.sockets import listeners, read_connections, socket_owners

TITLE = "ray::"


def callers(actors: Sequence[int], others: Collection[int]) -> Mapping[int, Sequence[int]]:
    """Which of `others` call each actor.

    Shape: `{actor pid: pids of its callers}`, processes that are no actors first (ranks talk among each other more
    than their engine does to them), then those with most connections. An actor without a caller on this host, or in
    another network namespace than ours, is left out.
    Errors: none. Source: TCP connections, both ends of which are seen, to the ports on which the actors listen.
    """
    near = [pid for pid in actors if same_namespace(pid, "net") is not False]
    ports = frozenset(each.port for each in listeners(near)[0] if each.pid is not None)
    if not ports:
        return {}
    try:
        connections = read_connections(ports)
    except (OSError, TimeoutError, struct.error):
        return {}
    ours, theirs = socket_owners(near)[0], socket_owners(others)[0]
    served = {(c.local, c.remote): ours[c.inode] for c in connections if c.local[1] in ports and c.inode in ours}
    counts: dict[int, Counter[int]] = {}
    for each in connections:
        actor, caller = served.get((each.remote, each.local)), theirs.get(each.inode)
        if actor is not None and caller is not None and caller != actor:
            counts.setdefault(actor, Counter())[caller] += 1
    among = frozenset(actors)
    return {actor: sorted(row, key=lambda pid: (pid in among, -row[pid], pid)) for actor, row in counts.items()}
