"""Named measurements that rules compare. A fact owns its unit and the sources it needs; it judges nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from enginectl.diagnose.measures import CORE_PROCESSES, ENGINE_ROLES, Measures, best
from enginectl.model.classified import Activity, ThreadView

Value = float | str | bool | None
Measure = Callable[[Measures, str, str], Value]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One named measurement: unit, the source without which it is None, and its meaning in plain words."""

    name: str
    unit: str
    source: str
    meaning: str
    measure: Measure


FACTS: dict[str, Fact] = {}


def _fact(name: str, unit: str, source: str, meaning: str) -> Callable[[Measure], Measure]:
    def add(measure: Measure) -> Measure:
        FACTS[name] = Fact(name=name, unit=unit, source=source, meaning=meaning, measure=measure)
        return measure

    return add


# --- threads of a role ---------------------------------------------------------------------------------------


@_fact("role.present", "", "stacks", "a thread holds the role {of}")
def _present(m: Measures, of: str, wait: str) -> Value:
    if not m.stack_samples:
        return None
    return bool(m.select(of))


@_fact("role.wait_ratio", "ratio", "stacks", "share of samples with {of} in {wait}")
def _wait_ratio(m: Measures, of: str, wait: str) -> Value:
    return best(m.wait_share(t, wait) for t in m.select(of))


@_fact("role.wait_ratio_least", "ratio", "stacks", "share of samples with the least busy {of} in {wait}")
def _wait_ratio_least(m: Measures, of: str, wait: str) -> Value:
    shares = [s for t in m.select(of) if (s := m.wait_share(t, wait)) is not None]
    return min(shares, default=None)


@_fact("role.running_ratio", "ratio", "stacks", "share of samples in which {of} was running Python or native work")
def _running_ratio(m: Measures, of: str, wait: str) -> Value:
    return best(t.running_ratio for t in m.select(of))


@_fact("role.cpu_ratio", "cores", "proc", "CPU that {of} used, in cores")
def _cpu_ratio(m: Measures, of: str, wait: str) -> Value:
    return best(t.cpu_ratio for t in m.select(of))


@_fact("role.gil_ratio", "ratio", "stacks", "share of samples in which {of} held the GIL")
def _gil_ratio(m: Measures, of: str, wait: str) -> Value:
    return best(t.gil_ratio for t in m.select(of))


@_fact(
    "role.gil_wait_ratio",
    "ratio",
    "stacks",
    "share of samples in which {of} stood still while another thread held the GIL",
)
def _gil_wait_ratio(m: Measures, of: str, wait: str) -> Value:
    return best(t.gil_wait_ratio for t in m.select(of))


@_fact("role.runqueue_ratio", "ratio", "proc", "share of the window in which {of} was runnable without a core")
def _runqueue_ratio(m: Measures, of: str, wait: str) -> Value:
    return best(0.0 if t.runqueue_ratio is not None and _only_polls(t) else t.runqueue_ratio for t in m.select(of))


def _only_polls(thread: ThreadView) -> bool:
    """Whether the thread mostly waited: one that spins for its peer wants a core only to look again."""
    waits = ("idle", "peer", "collective", "timer", "ipc-send")
    return sum(thread.class_ratios.get(name, 0.0) for name in waits) >= 0.5


@_fact("role.demand_ratio", "ratio", "proc", "share of the window in which {of} ran or wanted to run")
def _demand(m: Measures, of: str, wait: str) -> Value:
    return best(min(1.0, t.cpu_ratio + (t.runqueue_ratio or 0.0)) for t in m.select(of) if t.cpu_ratio is not None)


@_fact("role.demand_ratio", "ratio", "proc", "share of the window in which {of} ran or wanted to run")
def _role_demand(m: Measures, of: str, wait: str) -> Value:
    return best(min(1.0, t.cpu_ratio + (t.runqueue_ratio or 0.0)) for t in m.select(of) if t.cpu_ratio is not None)


@_fact("role.starved_ratio", "ratio", "proc", "share of its runnable time that {of} waited for a core")
def _starved_ratio(m: Measures, of: str, wait: str) -> Value:
    shares = [
        t.runqueue_ratio / (t.runqueue_ratio + t.cpu_ratio)
        for t in m.select(of)
        if t.runqueue_ratio is not None
        and t.cpu_ratio is not None
        and t.runqueue_ratio + t.cpu_ratio > 0.2
        and not _only_polls(t)
    ]
    known = any(t.runqueue_ratio is not None for t in m.select(of))
    return max(shares, default=0.0 if known else None)


@_fact("role.stack_moved", "", "second-sample", "the stack of {of} changed within the window")
def _stack_moved(m: Measures, of: str, wait: str) -> Value:
    known = [t.stack_moved for t in m.select(of) if t.stack_moved is not None]
    return any(known) if known else None


@_fact("role.moved", "", "second-sample", "{of} moved: its stack changed or it used CPU")
def _moved(m: Measures, of: str, wait: str) -> Value:
    known = [t.moved for t in m.select(of) if t.moved is not None]
    return any(known) if known else None


@_fact("role.wait_class", "", "stacks", "where {of} mostly stood")
def _wait_class(m: Measures, of: str, wait: str) -> Value:
    threads = m.select(of)
    return threads[0].wait_class if threads else None


@_fact("role.known", "", "stacks", "the place of {of} is a known wait point")
def _known(m: Measures, of: str, wait: str) -> Value:
    threads = [t for t in m.select(of) if t.frames]
    return any(t.wait_id for t in threads) if threads else None


@_fact("threads.all_idle", "", "stacks", "every engine thread stands at an idle place")
def _all_idle(m: Measures, of: str, wait: str) -> Value:
    threads = [t for t in m.select("engine") if t.samples]
    if not threads:
        return None
    return all(_is_idle(t) for t in threads)


def _is_idle(thread: ThreadView) -> bool:
    """Whether the thread rests. A plain `queue.get` is no resting place of a loop unless its engine says so."""
    if thread.role in ("frontend-loop", "monitor"):
        return thread.class_ratios.get("idle", 0.0) >= 0.75
    named = bool(thread.wait_id) and not str(thread.wait_id).startswith(("python.", "torch."))
    return named and thread.class_ratios.get("idle", 0.0) >= 0.75


@_fact(
    "threads.lock_blocked", "", "second-sample", "threads of one engine process that sleep in a lock and do not move"
)
def _lock_blocked(m: Measures, of: str, wait: str) -> Value:
    if m.stack_samples < 2:
        return None
    counts = [
        sum(t.wait_class == "lock" and t.moved is False for t in p.threads if t.role in ENGINE_ROLES)
        for p in m.topology.processes
    ]
    return float(max(counts, default=0))


@_fact("threads.parked", "", "stacks", "every engine thread waits, wherever it is")
def _parked(m: Measures, of: str, wait: str) -> Value:
    threads = [t for t in m.select("engine") if t.samples]
    return all(t.activity is not Activity.RUNNING for t in threads) if threads else None


@_fact("threads.asleep", "", "proc", "no thread behind the front end used more than 5 % of a core")
def _asleep(m: Measures, of: str, wait: str) -> Value:
    behind = [p for p in m.topology.processes if p.role in CORE_PROCESSES] or m.topology.processes
    cpus = [t.cpu_ratio for p in behind for t in p.threads if t.cpu_ratio is not None]
    return max(cpus) < 0.05 if cpus else None


@_fact("gil.other_ratio", "ratio", "stacks", "share of samples in which one thread other than the loop held the GIL")
def _gil_other(m: Measures, of: str, wait: str) -> Value:
    loops = {t.pid for t in m.select("engine-loop")}
    return best(t.gil_ratio for t in m.threads if t.pid in loops and t.role not in ("engine-loop",))


# --- topology ------------------------------------------------------------------------------------------------


@_fact("sink.class", "", "stacks", "wait class of the thread at the end of the chain")
def _sink_class(m: Measures, of: str, wait: str) -> Value:
    return next((t.wait_class for t in m.select("sink")), None)


@_fact("sink.kind", "", "stacks", "kind of place at the end of the chain")
def _sink_kind(m: Measures, of: str, wait: str) -> Value:
    return next(((row.kind if (row := m.row(t.wait_id)) else None) or "" for t in m.select("sink")), None)


@_fact("topology.cycles", "", "stacks", "cycles of threads that each wait for the next")
def _cycles(m: Measures, of: str, wait: str) -> Value:
    return float(len(m.topology.cycles)) if m.stack_samples else None


@_fact("topology.cycle_moved", "", "second-sample", "a thread of the cycle moved within the window")
def _cycle_moved(m: Measures, of: str, wait: str) -> Value:
    moved = [m.by_node[n].stack_moved for cycle in m.topology.cycles for n in cycle]
    known = [x for x in moved if x is not None]
    return any(known) if known else None


@_fact("topology.missing_roles", "", "stacks", "roles that this engine always has and nobody holds")
def _missing_roles(m: Measures, of: str, wait: str) -> Value:
    return float(len(m.topology.missing_roles)) if m.stack_samples else None


@_fact("ranks.buckets", "", "peer-stacks", "different places at which ranks of one role stand")
def _rank_buckets(m: Measures, of: str, wait: str) -> Value:
    return float(len(m.topology.buckets)) if m.topology.buckets else None


# --- processes -----------------------------------------------------------------------------------------------


@_fact("process.stopped", "", "proc", "processes that are stopped (T) or traced (t)")
def _stopped(m: Measures, of: str, wait: str) -> Value:
    states = [p.os_state for p in m.topology.processes if p.os_state]
    if not states and m.recording.made_by == "observe":
        return None
    return float(sum(s in ("T", "t") for s in states))


@_fact("process.gone", "", "proc", "engine processes that have ended or are zombies")
def _gone(m: Measures, of: str, wait: str) -> Value:
    rows = [p for p in m.topology.processes if p.os_state and (not of or p.role == of) and p.role != "helper"]
    if not any(p.os_state for p in m.topology.processes):
        return None
    return float(sum(p.os_state in ("X", "Z") for p in rows))


@_fact("process.present", "", "proc", "a process of the role {of} was seen")
def _process_present(m: Measures, of: str, wait: str) -> Value:
    return any(p.role == of for p in m.topology.processes)


@_fact("process.cpu_ratio", "cores", "proc", "CPU that the process {of} used, in cores")
def _process_cpu(m: Measures, of: str, wait: str) -> Value:
    return best(p.cpu_ratio for p in m.topology.processes if not of or p.role == of)


@_fact("process.rss_growth", "bytes/s", "proc", "growth of the memory of {of}")
def _rss_growth(m: Measures, of: str, wait: str) -> Value:
    return best(p.rss_growth_bytes_per_second for p in m.topology.processes if not of or p.role == of)


@_fact("process.disk_wait", "", "proc", "processes in uninterruptible sleep (D)")
def _disk_wait(m: Measures, of: str, wait: str) -> Value:
    states = [p.os_state for p in m.topology.processes if p.os_state]
    return float(states.count("D")) if states else None


# --- engine clock --------------------------------------------------------------------------------------------


def _engine(name: str, unit: str, meaning: str) -> None:
    def measure(m: Measures, of: str, wait: str) -> Value:
        value: Value = getattr(m.engine, name)
        return value

    FACTS[f"engine.{name}"] = Fact(
        name=f"engine.{name}", unit=unit, source="engine-counters", meaning=meaning, measure=measure
    )


_engine("outstanding", "requests", "requests that wait for an answer")
_engine("running", "requests", "requests running")
_engine("waiting", "requests", "requests waiting for admission")
_engine("kv_usage_ratio", "ratio", "KV cache in use")
_engine("progress", "", "tokens, steps or finished requests moved within the window")
_engine("tokens_per_second", "1/s", "tokens generated")
_engine("steps_per_second", "1/s", "steps that produced something")
_engine("finished_per_second", "1/s", "requests finished")
_engine("aborted_per_second", "1/s", "requests aborted")
_engine("preemptions_per_second", "1/s", "requests preempted")
_engine("frozen_seconds", "s", "time without any progress")
_engine("unanswered_requests", "requests", "client connections that sent a request and got nothing back")
_engine("unanswered_seconds", "s", "age of the oldest request without any answer")
_engine("device_is_cpu", "", "the model runs on the CPU")
_engine("steps_total", "", "steps since the engine started")


@_fact("engine.frozen", "", "engine-counters", "work is outstanding and no progress counter moved")
def _frozen(m: Measures, of: str, wait: str) -> Value:
    clock = m.engine
    if clock.progress is None:
        return None
    if clock.progress:
        return False
    if clock.outstanding is None:
        # somebody who says that tokens stopped has seen them expected
        return True if m.recording.stated is not None else None
    return clock.outstanding > 0


@_fact("engine.outstanding_known", "", "proc", "whether any source tells how many requests are outstanding")
def _outstanding_known(m: Measures, of: str, wait: str) -> Value:
    return m.engine.outstanding is not None


@_fact("engine.counters_known", "", "proc", "whether the engine's counters could be read")
def _counters_known(m: Measures, of: str, wait: str) -> Value:
    return m.engine.progress is not None


@_fact("engine.abort_ratio", "ratio", "engine-counters", "aborted requests among all that ended")
def _abort_ratio(m: Measures, of: str, wait: str) -> Value:
    aborted, finished = m.engine.aborted_per_second, m.engine.finished_per_second
    if aborted is None or finished is None:
        return None
    # exporters count aborts among the finished ones
    total = max(finished, aborted)
    return aborted / total if total > 0 else 0.0


@_fact("endpoint.state", "", "engine-counters", "how /metrics answered")
def _endpoint_state(m: Measures, of: str, wait: str) -> Value:
    states = [s.endpoint.state for s in m.recording.snapshots if s.endpoint]
    return states[-1] if states else None


# --- device clock --------------------------------------------------------------------------------------------


def _device(name: str, unit: str, meaning: str) -> None:
    def measure(m: Measures, of: str, wait: str) -> Value:
        value: Value = getattr(m.device, name)
        return value

    FACTS[f"device.{name}"] = Fact(name=f"device.{name}", unit=unit, source="gpu", meaning=meaning, measure=measure)


_device("busy_ratio", "ratio", "share of real work on the GPUs")
_device("utilization_ratio", "ratio", "GPU utilisation")
_device("power_share", "ratio", "GPU power over its limit")
_device("memory_activity_ratio", "ratio", "GPU memory activity")
_device("spinning", "", "a GPU is utilised at low power without memory traffic")
_device("fault", "", "a GPU reports an error")


@_fact("device.known", "", "proc", "whether any GPU could be read")
def _device_known(m: Measures, of: str, wait: str) -> Value:
    return m.device.utilization_ratio is not None


# --- host ----------------------------------------------------------------------------------------------------


@_fact("host.cpu_pressure", "percent", "host", "share of time in which some task waited for a core")
def _cpu_pressure(m: Measures, of: str, wait: str) -> Value:
    return best(s.host.cpu_pressure_percent for s in m.recording.snapshots if s.host)


@_fact("host.throttled_ratio", "ratio", "host", "share of the window in which the CPU quota throttled the engine")
def _throttled(m: Measures, of: str, wait: str) -> Value:
    reads = [(s.offset_seconds, s.host.throttled_seconds) for s in m.recording.snapshots if s.host]
    known = [(at, v) for at, v in reads if v is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])


@_fact("host.shm_free_bytes", "bytes", "host", "free space in the engine's /dev/shm")
def _shm_free(m: Measures, of: str, wait: str) -> Value:
    if m.recording.stated and m.recording.stated.host.shm_free_bytes is not None:
        return float(m.recording.stated.host.shm_free_bytes)
    known = [p.shm_free_bytes for p in m.last_samples if p.shm_free_bytes is not None]
    return float(min(known)) if known else None


@_fact("host.blocked_pipes", "", "proc", "threads blocked in a write to a full pipe")
def _blocked_pipes(m: Measures, of: str, wait: str) -> Value:
    if not m.last_samples:
        return None
    return float(sum(len(p.blocked_pipes) for p in m.last_samples))


@_fact("host.awaited_locks", "", "proc", "file locks that the engine waits for and another process holds")
def _awaited_locks(m: Measures, of: str, wait: str) -> Value:
    return float(sum(len(p.awaited_file_locks) for p in m.last_samples)) if m.last_samples else None


@_fact("host.compilers", "", "proc", "compilers running as children of the engine")
def _compilers(m: Measures, of: str, wait: str) -> Value:
    known = [p.compiler_children for p in m.last_samples if p.compiler_children is not None]
    return float(sum(known)) if known else None


# --- the evidence itself -------------------------------------------------------------------------------------


@_fact("window.seconds", "s", "proc", "length of the observation")
def _window(m: Measures, of: str, wait: str) -> Value:
    stated = m.recording.stated.progress.stuck_seconds if m.recording.stated else None
    return max(m.window_seconds, stated or 0.0)


@_fact("window.samples", "", "proc", "samples that carry stacks")
def _samples(m: Measures, of: str, wait: str) -> Value:
    return float(m.stack_samples)


@_fact("stated.stuck_seconds", "s", "second-sample", "how long the same stacks were seen")
def _stuck(m: Measures, of: str, wait: str) -> Value:
    return m.recording.stated.progress.stuck_seconds if m.recording.stated else None


@_fact("stated.starting_seconds", "s", "second-sample", "time since launch without becoming ready")
def _starting(m: Measures, of: str, wait: str) -> Value:
    return m.recording.stated.progress.starting_seconds if m.recording.stated else None


@_fact("evidence.live", "", "proc", "the recording was taken from live processes")
def _live(m: Measures, of: str, wait: str) -> Value:
    return m.recording.made_by == "observe"


@_fact("evidence.stacks", "", "proc", "stacks of an engine process were read")
def _stacks(m: Measures, of: str, wait: str) -> Value:
    return any(p.stacks_read and p.threads for p in m.topology.processes)


@_fact("evidence.attach_denied", "", "proc", "processes whose stacks could not be read")
def _denied(m: Measures, of: str, wait: str) -> Value:
    gaps = [*m.recording.gaps, *(g for s in m.recording.snapshots for g in s.gaps)]
    if m.recording.understood and m.recording.understood.tool_error and not m.recording.understood.threads:
        return True
    return any(g.source == "stacks" for g in gaps) and not m.stack_samples


@_fact("evidence.engine_visible", "", "stacks", "a thread with an engine role was seen")
def _engine_visible(m: Measures, of: str, wait: str) -> Value:
    return any(t.frames for t in m.select("engine"))


@_fact("log.word", "", "log", "the log says {wait}")
def _log_word(m: Measures, of: str, wait: str) -> Value:
    return any(word in m.recording.notes for word in wait.split("|"))


@_fact("dump.torn_ratio", "ratio", "dump", "share of thread lines that did not parse")
def _torn(m: Measures, of: str, wait: str) -> Value:
    seen = m.recording.understood
    return seen.torn / max(1, seen.torn + seen.frames) if seen else None


@_fact("dump.threads", "", "dump", "threads found in the dump")
def _dump_threads(m: Measures, of: str, wait: str) -> Value:
    return float(m.recording.understood.threads) if m.recording.understood else None


@_fact("dump.tool_error", "", "dump", "the text is only an error of the stack reader")
def _tool_error(m: Measures, of: str, wait: str) -> Value:
    return m.recording.understood.tool_error or "" if m.recording.understood else None


@_fact("dump.death_notice", "", "dump", "the dump was written by a dying process")
def _death_notice(m: Measures, of: str, wait: str) -> Value:
    return m.recording.understood.death_notice or "" if m.recording.understood else None
