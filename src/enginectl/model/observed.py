"""What was observed: plain facts of one recording, with a `Gap` wherever a source was silent.

Every number carries its unit in its name. `None` means "not read"; it never stands for zero.
"""

from __future__ import annotations

import msgspec

SCHEMA_VERSION = 1


class Frame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One stack frame.

    `function` may be qualified (`EngineCore.step`); `file` is a path, or a library for native frames.
    """

    function: str
    file: str
    line: int | None = None
    native: bool = False


class ProcessFact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who a process is. `pid` and `started_at` (seconds since the epoch) together are its identity.

    `role` is a process role of the contract, or None when the title and command line do not tell.
    `ranks` maps tp, pp, dp, ep to numbers. `flags` are the command-line flags of the engine's own
    command, redacted. `environment` holds the few variables that change how an engine runs, never all of them;
    `environment_count` is how many there are in all, 0 when they were not read or a title has overwritten them.
    """

    pid: int
    started_at: float | None = None
    parent_pid: int | None = None
    title: str = ""
    command: tuple[str, ...] = ()
    engine: str | None = None
    engine_version: str | None = None
    python_version: str | None = None
    role: str | None = None
    ranks: dict[str, int] = {}
    flags: dict[str, str] = {}
    environment: dict[str, str] = {}
    environment_count: int = 0
    pid_namespace_foreign: bool = False


class ThreadSample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One thread at one instant. CPU, run-queue and switch values are totals since the thread began.

    `frames` is innermost first; None means that no stack was read, () that the thread has no Python frame.
    `active` and `holds_gil` are what the stack reader said, None when it could not know.
    """

    tid: int
    name: str | None = None
    os_state: str | None = None
    cpu_seconds: float | None = None
    runqueue_seconds: float | None = None
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    wchan: str | None = None
    active: bool | None = None
    holds_gil: bool | None = None
    frames: tuple[Frame, ...] | None = None


class ProcessSample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One process at one instant.

    `os_state` is R S D T t Z, or X when the process has gone. `threads` holds Python threads first when
    stacks were read. `native_threads` counts threads without Python frames. `blocked_pipes` describes writes
    to full pipes (`fd 2 -> pipe:[123], no reader reads`), `held_locks` file locks somebody else holds.
    `shared_segments` are the shared-memory files that it and another process of the tree hold open.
    `moving` says that the stacks were read while the process ran on: they may be torn.
    """

    pid: int
    os_state: str | None = None
    tracer_pid: int | None = None
    rss_bytes: int | None = None
    cpu_seconds: float | None = None
    threads: tuple[ThreadSample, ...] = ()
    native_threads: int | None = None
    shm_free_bytes: int | None = None
    shm_size_bytes: int | None = None
    blocked_pipes: tuple[str, ...] = ()
    awaited_file_locks: tuple[str, ...] = ()
    shared_segments: tuple[str, ...] = ()
    compiler_children: int | None = None
    compiler_cpu_seconds: float | None = None
    unanswered_requests: int | None = None
    unanswered_seconds: float | None = None
    unclear_requests: int | None = None
    unclear_seconds: tuple[float, ...] = ()
    stack_seconds: float | None = None
    moving: bool = False


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One GPU at one instant; ratios are 0..1 except where NVML says percent.

    `fault` is lost or reset-required when the driver says so. `process_memory_bytes` maps a pid, as text, to
    bytes; `other` sums processes that are not the engine's or whose pid is not visible here.
    """

    index: int
    name: str | None = None
    utilization_percent: float | None = None
    memory_activity_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    sm_clock_mhz: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    sm_activity_ratio: float | None = None
    tensor_activity_ratio: float | None = None
    dram_bandwidth_ratio: float | None = None
    ecc_errors_uncorrected: int | None = None
    retired_pages: int | None = None
    xid: int | None = None
    fault: str | None = None
    mig: bool | None = None
    process_memory_bytes: dict[str, int] = {}


class CounterSample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One engine metric line: `name` as exported (`vllm:num_requests_running`), its labels and value."""

    name: str
    value: float
    labels: dict[str, str] = {}


class HostSample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The machine around the engine at one instant."""

    cpu_count: int | None = None
    cpu_limit_cores: float | None = None
    affinity_cores: int | None = None
    load_runnable: int | None = None
    throttled_seconds: float | None = None
    cpu_pressure_percent: float | None = None
    memory_pressure_percent: float | None = None
    io_pressure_percent: float | None = None
    memory_free_bytes: int | None = None
    oom_kills: int | None = None


class Gap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A source that could not be read, why, and the one step that would open it."""

    source: str
    reason: str
    remedy: str = ""


class CommunicatorRank(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rank of a communicator at one instant, or several that stand alike and are not named (`members`).

    `collectives` maps an operation (`AllReduce`) to how many of them the rank has launched. `state` is running,
    starting, ending, aborted, failed, silent (its process gave no answer) or dead.
    """

    rank: int | None = None
    pid: int | None = None
    members: int = 1
    state: str = "running"
    collectives: dict[str, int] = {}


class Communicator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A group of ranks as the collective library knows it. `size` counts all its ranks, seen or not."""

    name: str
    size: int | None = None
    ranks: tuple[CommunicatorRank, ...] = ()


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How `/metrics` answered: ok, refused, unreachable, timeout, garbage, unauthorized or not-found."""

    url: str
    state: str
    seconds: float | None = None
    detail: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything read at one instant. `offset_seconds` is monotonic since the first snapshot.

    `pause_seconds` is an upper bound on how long any target stood still for this snapshot.
    """

    offset_seconds: float
    taken_at: str = ""
    processes: tuple[ProcessSample, ...] = ()
    gpus: tuple[GpuSample, ...] | None = None
    counters: tuple[CounterSample, ...] | None = None
    endpoint: Endpoint | None = None
    communicators: tuple[Communicator, ...] | None = None
    host: HostSample | None = None
    gaps: tuple[Gap, ...] = ()
    pause_seconds: float = 0.0


class StatedProcess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a facts file says of one process."""

    pid: int
    os_state: str | None = None
    cpu_ratio: float | None = None
    rank: int | None = None
    ranks: int | None = None
    collective_sequence: int | None = None


class StatedThread(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a facts file says of one thread."""

    tid: int
    pid: int | None = None
    cpu_ratio: float | None = None


class StatedRequests(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Requests running and waiting, as stated."""

    running: int | None = None
    waiting: int | None = None


class StatedProgress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Progress as stated. `tokens_frozen_seconds = 0` says that tokens flow."""

    tokens_frozen_seconds: float | None = None
    tokens_per_second: float | None = None
    stuck_seconds: float | None = None
    starting_seconds: float | None = None


class StatedHost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Host limits as stated."""

    shm_free_bytes: int | None = None
    cpu_limit_cores: float | None = None
    memory_free_bytes: int | None = None


class StatedLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Log lines the reporter gave. They are matched, never printed back."""

    lines: tuple[str, ...] = ()


class StatedFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The facts file (`--facts`): evidence that a dump cannot carry. Keys are those of the contract."""

    engine: str | None = None
    engine_version: str | None = None
    python_version: str | None = None
    gpus: tuple[GpuSample, ...] = ()
    requests: StatedRequests = StatedRequests()
    progress: StatedProgress = StatedProgress()
    host: StatedHost = StatedHost()
    process: tuple[StatedProcess, ...] = ()
    thread: tuple[StatedThread, ...] = ()
    log: StatedLog = StatedLog()


class Understood(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How much of a saved dump was understood; `torn` counts thread lines that did not parse.

    `tool_error` is the class of an error text found in place of a dump: permission, no-tool, version,
    stopped or other.
    """

    formats: tuple[str, ...] = ()
    processes: int = 0
    threads: int = 0
    frames: int = 0
    lines: int = 0
    lines_skipped: int = 0
    torn: int = 0
    tool_error: str | None = None
    death_notice: str | None = None


class Recording(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """All facts of one observation. One recording gives one report, anywhere.

    `made_by` is `observe`, or `read` for saved dumps. `target_pid` is the pid the user named.
    """

    schema_version: int = SCHEMA_VERSION
    made_by: str = "observe"
    enginectl_version: str = ""
    host: str = ""
    target_pid: int | None = None
    only_pid: bool = False
    processes: tuple[ProcessFact, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    stated: StatedFacts | None = None
    understood: Understood | None = None
    redactions: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()
    wall_seconds: float = 0.0
