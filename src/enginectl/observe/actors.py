"""Ray actors of an engine: they live below the raylet, so the process tree does not lead to them; their calls do."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from enginectl.observe.sockets import listeners, read_connections, socket_owners

TITLE = "ray::"


def callers(actors: Iterable[int], others: Iterable[int]) -> Mapping[int, int]:
    """Which of `others` calls each actor.

    Shape: `{actor pid: pid of its caller}`; an actor without a caller on this host is left out, and of several callers
    the one with most connections counts, the oldest pid first. Errors: none.
    Source: TCP connections to the ports on which the actors listen, from INET_DIAG.
    """
    mine = list(actors)
    ports = {each.port: each.pid for each in listeners(mine)[0] if each.pid is not None}
    if not ports:
        return {}
    owners, _ = socket_owners(others)
    try:
        connections = read_connections(frozenset(ports))
    except (OSError, TimeoutError, struct.error):
        return {}
    counts: dict[int, dict[int, int]] = {}
    for each in connections:
        actor, caller = ports.get(each.remote[1]), owners.get(each.inode)
        if actor is not None and caller is not None and caller != actor:
            row = counts.setdefault(actor, {})
            row[caller] = row.get(caller, 0) + 1
    return {actor: min(row, key=lambda pid: (-row[pid], pid)) for actor, row in counts.items()}
