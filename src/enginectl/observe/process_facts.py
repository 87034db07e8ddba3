"""The slower facts of the host's side of each process: locks, shared memory, compilers, full pipes, waiting clients."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginectl.model.observed import Gap, ProcessSample
from enginectl.observe import children, locks, pipes, shm, sockets


def completed(
    samples: Sequence[ProcessSample],
    alive: Sequence[int],
    *,
    clients_of: Sequence[int],
    ports: tuple[int, ...] | None,
    front: int | None,
) -> tuple[list[ProcessSample], list[Gap]]:
    """The samples with these facts, for the pids in `alive`; the others as they are.

    Clients of the processes `clients_of`, at `ports` when these are known, are told of the process `front`.
    Errors: none. Source: one collector each, with its own Gap.
    """
    awaited, lock_gaps = locks.read_locks(alive)
    segments = shm.shared_segments(alive)
    compiling, child_gaps = children.read_compilers(alive)
    clients = sockets.read_clients(clients_of, ports=ports)
    gaps = [*lock_gaps, *child_gaps, *clients.gaps]
    result: list[ProcessSample] = []
    for sample in samples:
        if sample.pid not in alive:
            result.append(sample)
            continue
        space, _, shm_gaps = shm.read_shm(sample.pid, others=False)
        waiting = {t.tid: t.wchan for t in sample.threads if t.wchan in pipes.WRITE_WCHANS}
        blocked, pipe_gaps = pipes.read_pipes(sample.pid, waiting) if waiting else ((), ())
        gaps += [*shm_gaps, *pipe_gaps]
        result.append(
            msgspec.structs.replace(
                sample,
                shm_free_bytes=space.free_bytes if space else None,
                shm_size_bytes=space.size_bytes if space else None,
                blocked_pipes=blocked,
                awaited_file_locks=awaited.get(sample.pid, ()),
                shared_segments=segments.get(sample.pid, ()),
                compiler_children=compiling[sample.pid].count if sample.pid in compiling else None,
                compiler_cpu_seconds=compiling[sample.pid].cpu_seconds if sample.pid in compiling else None,
                unanswered_requests=clients.unanswered if sample.pid == front else None,
                unanswered_seconds=clients.unanswered_seconds if sample.pid == front else None,
                unclear_requests=clients.unclear if sample.pid == front else None,
                unclear_seconds=clients.unclear_seconds if sample.pid == front else (),
            )
        )
    return result, gaps
