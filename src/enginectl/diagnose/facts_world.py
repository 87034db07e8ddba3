"""Facts of processes, of the host, and of the evidence itself."""

from __future__ import annotations

from enginectl.diagnose.fact import Value, fact
from enginectl.diagnose.measures import Measures, best


@fact("process.stopped", "", "proc", "processes that are stopped (T) or traced (t)")
def _stopped(m: Measures, of: str, wait: str) -> Value:
    states = [p.os_state for p in m.topology.processes if p.os_state]
    if not states and m.recording.made_by == "observe":
        return None
    return float(sum(p.stopped for p in m.topology.processes if p.role != "helper"))


@fact("process.gone", "", "proc", "engine processes that have ended or are zombies")
def _gone(m: Measures, of: str, wait: str) -> Value:
    rows = [p for p in m.topology.processes if p.os_state and (not of or p.role == of) and p.role != "helper"]
    if not any(p.os_state for p in m.topology.processes):
        return None
    return float(sum(p.os_state in ("X", "Z") for p in rows))


@fact("process.present", "", "proc", "a process of the role {of} was seen")
def _process_present(m: Measures, of: str, wait: str) -> Value:
    return any(p.role == of for p in m.topology.processes)


@fact("process.cpu_ratio", "cores", "proc", "CPU that the process {of} used, in cores")
def _process_cpu(m: Measures, of: str, wait: str) -> Value:
    return best(p.cpu_ratio for p in m.topology.processes if not of or p.role == of)


@fact("process.rss_growth", "bytes/s", "proc", "growth of the memory of {of}")
def _rss_growth(m: Measures, of: str, wait: str) -> Value:
    return best(p.rss_growth_bytes_per_second for p in m.topology.processes if not of or p.role == of)


@fact("process.disk_wait", "", "proc", "processes in uninterruptible sleep (D)")
def _disk_wait(m: Measures, of: str, wait: str) -> Value:
    states = [p.os_state for p in m.topology.processes if p.os_state]
    return float(states.count("D")) if states else None


@fact("host.cpu_pressure", "percent", "host", "share of time in which some task waited for a core")
def _cpu_pressure(m: Measures, of: str, wait: str) -> Value:
    return best(s.host.cpu_pressure_percent for s in m.recording.snapshots if s.host)


@fact("host.throttled_ratio", "ratio", "host", "share of the window in which the CPU quota throttled the engine")
def _throttled(m: Measures, of: str, wait: str) -> Value:
    reads = [(s.offset_seconds, s.host.throttled_seconds) for s in m.recording.snapshots if s.host]
    known = [(at, v) for at, v in reads if v is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])


@fact("host.limit_used_ratio", "ratio", "host", "share of a stated CPU limit that the engine's processes use")
def _limit_used(m: Measures, of: str, wait: str) -> Value:
    """Of a live engine the kernel counts the throttling itself: `host.throttled_ratio`."""
    limit = m.recording.stated.host.cpu_limit_cores if m.recording.stated else None
    used = [p.cpu_ratio for p in m.topology.processes if p.cpu_ratio is not None]
    return sum(used) / limit if limit and used else None


@fact("host.shm_free_bytes", "bytes", "host", "free space in the engine's /dev/shm")
def _shm_free(m: Measures, of: str, wait: str) -> Value:
    if m.recording.stated and m.recording.stated.host.shm_free_bytes is not None:
        return float(m.recording.stated.host.shm_free_bytes)
    known = [p.shm_free_bytes for p in m.last_samples if p.shm_free_bytes is not None]
    return float(min(known)) if known else None


@fact("host.shm_free_ratio", "ratio", "host", "free share of the engine's /dev/shm")
def _shm_free_ratio(m: Measures, of: str, wait: str) -> Value:
    if m.recording.stated and m.recording.stated.host.shm_free_bytes is not None:
        return 0.0 if m.recording.stated.host.shm_free_bytes < 1 << 20 else None
    known = [(p.shm_free_bytes, p.shm_size_bytes) for p in m.last_samples]
    ratios = [free / size for free, size in known if free is not None and size]
    return min(ratios, default=None)


@fact("evidence.only_pid", "", "proc", "only one process was looked at")
def _only_pid(m: Measures, of: str, wait: str) -> Value:
    return m.recording.only_pid


@fact("host.blocked_pipes", "", "proc", "threads blocked in a write to a full pipe")
def _blocked_pipes(m: Measures, of: str, wait: str) -> Value:
    if not m.last_samples:
        return None
    return float(sum(len(p.blocked_pipes) for p in m.last_samples))


@fact("host.awaited_locks", "", "proc", "file locks that the engine waits for and another process holds")
def _awaited_locks(m: Measures, of: str, wait: str) -> Value:
    return float(sum(len(p.awaited_file_locks) for p in m.last_samples)) if m.last_samples else None


@fact("host.compilers", "", "proc", "compilers running as children of the engine")
def _compilers(m: Measures, of: str, wait: str) -> Value:
    known = [p.compiler_children for p in m.last_samples if p.compiler_children is not None]
    return float(sum(known)) if known else None


@fact("window.seconds", "s", "proc", "length of the observation")
def _window(m: Measures, of: str, wait: str) -> Value:
    if m.recording.stated is None:
        return m.window_seconds
    progress = m.recording.stated.progress
    return max(m.window_seconds, progress.stuck_seconds or 0.0, progress.tokens_frozen_seconds or 0.0)


@fact("window.samples", "", "proc", "samples that carry stacks")
def _samples(m: Measures, of: str, wait: str) -> Value:
    return float(m.stack_samples)


@fact("stated.stuck_seconds", "s", "second-sample", "how long the same stacks were seen")
def _stuck(m: Measures, of: str, wait: str) -> Value:
    return m.recording.stated.progress.stuck_seconds if m.recording.stated else None


@fact("stated.starting_seconds", "s", "second-sample", "time since launch without becoming ready")
def _starting(m: Measures, of: str, wait: str) -> Value:
    return m.recording.stated.progress.starting_seconds if m.recording.stated else None


@fact("evidence.live", "", "proc", "the recording was taken from live processes")
def _live(m: Measures, of: str, wait: str) -> Value:
    return m.recording.made_by == "observe"


@fact("evidence.stacks", "", "proc", "stacks of an engine process were read")
def _stacks(m: Measures, of: str, wait: str) -> Value:
    return any(p.stacks_read and p.threads for p in m.topology.processes)


@fact("evidence.attach_denied", "", "proc", "processes whose stacks could not be read")
def _denied(m: Measures, of: str, wait: str) -> Value:
    gaps = [*m.recording.gaps, *(g for s in m.recording.snapshots for g in s.gaps)]
    if m.recording.understood and m.recording.understood.tool_error and not m.recording.understood.threads:
        return True
    return any(g.source == "stacks" for g in gaps) and not m.stack_samples


@fact("evidence.engine_known", "", "stacks", "a process of a known engine was seen")
def _engine_known(m: Measures, of: str, wait: str) -> Value:
    return m.engine_name is not None


@fact("evidence.engine_visible", "", "stacks", "a thread with an engine role was seen")
def _engine_visible(m: Measures, of: str, wait: str) -> Value:
    return any(t.frames for t in m.select("engine"))


@fact("log.word", "", "log", "the log says {wait}")
def _log_word(m: Measures, of: str, wait: str) -> Value:
    return any(word in m.recording.notes for word in wait.split("|"))


@fact("dump.torn_ratio", "ratio", "dump", "share of thread lines that did not parse")
def _torn(m: Measures, of: str, wait: str) -> Value:
    seen = m.recording.understood
    return seen.torn / max(1, seen.torn + seen.frames) if seen else None


@fact("dump.threads", "", "dump", "threads found in the dump")
def _dump_threads(m: Measures, of: str, wait: str) -> Value:
    return float(m.recording.understood.threads) if m.recording.understood else None


@fact("dump.tool_error", "", "dump", "the text is only an error of the stack reader")
def _tool_error(m: Measures, of: str, wait: str) -> Value:
    return m.recording.understood.tool_error or "" if m.recording.understood else None


@fact("dump.death_notice", "", "dump", "the dump was written by a dying process")
def _death_notice(m: Measures, of: str, wait: str) -> Value:
    return m.recording.understood.death_notice or "" if m.recording.understood else None
