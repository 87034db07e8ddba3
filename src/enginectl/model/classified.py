"""What the facts mean: each thread's role and wait point, who waits for whom, and how ranks compare."""

from __future__ import annotations

import enum

import msgspec

from enginectl.model.observed import Frame


class Activity(enum.Enum):
    """Whether a thread was working."""

    RUNNING = "running"
    WAITING = "waiting"
    UNKNOWN = "unknown"


class ThreadView(msgspec.Struct, frozen=True, kw_only=True):
    """One thread over the whole window.

    The `wait_*` fields describe the place seen most often (ties: the last one); `wait_ratios` maps wait point
    ids, `class_ratios` wait classes, to their share of the samples with a stack (0..1). `cpu_ratio` is cores
    used over the window (0..1), `runqueue_ratio` the share of the window spent runnable without a core.
    `moved` is False when every sample showed the same frames and lines and the thread used no CPU and did not
    switch; None when there was only one sample.
    """

    pid: int
    tid: int
    name: str
    role: str
    wait_id: str | None
    wait_class: str
    meaning: str
    waits_for: str | None
    through: str | None
    activity: Activity
    frames: tuple[Frame, ...]
    matched: tuple[Frame, ...]
    samples: int
    wait_ratios: dict[str, float]
    class_ratios: dict[str, float]
    running_ratio: float | None
    cpu_ratio: float | None
    gil_ratio: float | None
    gil_wait_ratio: float | None
    runqueue_ratio: float | None
    switches_per_second: float | None
    moved: bool | None
    stack_moved: bool | None
    os_state: str | None
    wchan: str | None


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """One process over the window: its role, state and threads (main thread first)."""

    pid: int
    role: str
    title: str
    engine: str | None
    engine_version: str | None
    python_version: str | None
    ranks: dict[str, int]
    parent_pid: int | None
    os_state: str | None
    stopped: bool
    tracer_pid: int | None
    cpu_ratio: float | None
    rss_growth_bytes_per_second: float | None
    threads: tuple[ThreadView, ...]
    stacks_read: bool
    shared_segments: frozenset[str] = frozenset()


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """`waiter` (pid, tid) cannot go on before `actor` acts, through `channel`. `actor` is None when invisible."""

    waiter: tuple[int, int]
    actor: tuple[int, int] | None
    actor_role: str
    channel: str
    wait_id: str


class RankBucket(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks whose threads of one role stood at the same place."""

    role: str
    wait_id: str | None
    wait_class: str
    signature: tuple[str, ...]
    members: tuple[tuple[int, int], ...]


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """Roles, edges, the blame chain (victims first, sink last), cycles and rank buckets."""

    processes: tuple[ProcessView, ...]
    edges: tuple[Edge, ...]
    chain: tuple[tuple[int, int], ...]
    cycles: tuple[tuple[tuple[int, int], ...], ...]
    buckets: tuple[RankBucket, ...]
    missing_roles: tuple[tuple[int, str], ...]
