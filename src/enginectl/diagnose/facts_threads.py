"""Facts of threads and of how they hang together: places, clocks, the GIL, cycles, ranks."""

from __future__ import annotations

from enginectl.diagnose.fact import Value, fact
from enginectl.diagnose.measures import CORE_PROCESSES, ENGINE_ROLES, Measures, best
from enginectl.model.classified import Activity, ThreadView


@fact("role.present", "", "stacks", "a thread holds the role {of}")
def _present(m: Measures, of: str, wait: str) -> Value:
    if not m.stack_samples:
        return None
    return bool(m.select(of))


@fact("role.wait_ratio", "ratio", "stacks", "share of samples with {of} in {wait}")
def _wait_ratio(m: Measures, of: str, wait: str) -> Value:
    return best(m.wait_share(t, wait) for t in m.select(of))


@fact("role.wait_ratio_least", "ratio", "stacks", "share of samples with the least busy {of} in {wait}")
def _wait_ratio_least(m: Measures, of: str, wait: str) -> Value:
    shares = [s for t in m.select(of) if (s := m.wait_share(t, wait)) is not None]
    return min(shares, default=None)


@fact("role.running_ratio", "ratio", "stacks", "share of samples in which {of} was running Python or native work")
def _running_ratio(m: Measures, of: str, wait: str) -> Value:
    return best(t.running_ratio for t in m.select(of))


@fact("role.cpu_ratio", "cores", "proc", "CPU that {of} used, in cores")
def _cpu_ratio(m: Measures, of: str, wait: str) -> Value:
    return best(t.cpu_ratio for t in m.select(of))


@fact("role.gil_ratio", "ratio", "stacks", "share of samples in which {of} held the GIL")
def _gil_ratio(m: Measures, of: str, wait: str) -> Value:
    return best(t.gil_ratio for t in m.select(of))


@fact(
    "role.gil_wait_ratio",
    "ratio",
    "stacks",
    "share of samples in which {of} stood still while another thread held the GIL",
)
def _gil_wait_ratio(m: Measures, of: str, wait: str) -> Value:
    return best(t.gil_wait_ratio for t in m.select(of))


@fact("role.runqueue_ratio", "ratio", "proc", "share of the window in which {of} was runnable without a core")
def _runqueue_ratio(m: Measures, of: str, wait: str) -> Value:
    return best(0.0 if t.runqueue_ratio is not None and _only_polls(t) else t.runqueue_ratio for t in m.select(of))


def _only_polls(thread: ThreadView) -> bool:
    """Whether the thread mostly waited: one that spins for its peer wants a core only to look again."""
    waits = ("idle", "peer", "collective", "timer", "ipc-send")
    return sum(thread.class_ratios.get(name, 0.0) for name in waits) >= 0.5


@fact("role.demand_ratio", "ratio", "proc", "share of the window in which {of} ran or wanted to run")
def _role_demand(m: Measures, of: str, wait: str) -> Value:
    return best(min(1.0, t.cpu_ratio + (t.runqueue_ratio or 0.0)) for t in m.select(of) if t.cpu_ratio is not None)


@fact("role.starved_ratio", "ratio", "proc", "share of its runnable time that {of} waited for a core")
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


@fact("role.stack_moved", "", "second-sample", "the stack of {of} changed within the window")
def _stack_moved(m: Measures, of: str, wait: str) -> Value:
    known = [t.stack_moved for t in m.select(of) if t.stack_moved is not None]
    return any(known) if known else None


@fact("role.moved", "", "second-sample", "{of} moved: its stack changed or it used CPU")
def _moved(m: Measures, of: str, wait: str) -> Value:
    known = [t.moved for t in m.select(of) if t.moved is not None]
    return any(known) if known else None


@fact("role.wait_class", "", "stacks", "where {of} mostly stood")
def _wait_class(m: Measures, of: str, wait: str) -> Value:
    threads = m.select(of)
    return threads[0].wait_class if threads else None


@fact("role.known", "", "stacks", "the place of {of} is a known wait point")
def _known(m: Measures, of: str, wait: str) -> Value:
    threads = [t for t in m.select(of) if t.frames]
    return any(t.wait_id for t in threads) if threads else None


@fact("threads.all_idle", "", "stacks", "every engine thread stands at an idle place")
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


@fact("threads.lock_blocked", "", "second-sample", "threads of one engine process that sleep in a lock and do not move")
def _lock_blocked(m: Measures, of: str, wait: str) -> Value:
    if m.stack_samples < 2:
        return None
    counts = [
        sum(t.wait_class == "lock" and t.moved is False for t in p.threads if t.role in ENGINE_ROLES)
        for p in m.topology.processes
    ]
    return float(max(counts, default=0))


@fact("threads.parked", "", "stacks", "every engine thread waits, wherever it is")
def _parked(m: Measures, of: str, wait: str) -> Value:
    threads = [t for t in m.select("engine") if t.samples]
    return all(t.activity is not Activity.RUNNING for t in threads) if threads else None


@fact("threads.asleep", "", "proc", "no thread behind the front end used more than 5 % of a core")
def _asleep(m: Measures, of: str, wait: str) -> Value:
    behind = [p for p in m.topology.processes if p.role in CORE_PROCESSES] or m.topology.processes
    cpus = [t.cpu_ratio for p in behind for t in p.threads if t.cpu_ratio is not None]
    return max(cpus) < 0.05 if cpus else None


@fact("gil.other_ratio", "ratio", "stacks", "share of samples in which one thread other than the loop held the GIL")
def _gil_other(m: Measures, of: str, wait: str) -> Value:
    loops = {t.pid for t in m.select("engine-loop")}
    return best(t.gil_ratio for t in m.threads if t.pid in loops and t.role not in ("engine-loop",))


@fact("gil.holder_cpu_ratio", "cores", "proc", "CPU of the thread other than the loop that held the GIL most often")
def _gil_holder_cpu(m: Measures, of: str, wait: str) -> Value:
    loops = {t.pid for t in m.select("engine-loop")}
    held = [t for t in m.threads if t.pid in loops and t.role != "engine-loop" and t.gil_ratio]
    return max(held, key=lambda t: t.gil_ratio or 0.0).cpu_ratio if held else None


@fact("sink.class", "", "stacks", "wait class of the thread at the end of the chain")
def _sink_class(m: Measures, of: str, wait: str) -> Value:
    return next((t.wait_class for t in m.select("sink")), None)


@fact("sink.kind", "", "stacks", "kind of place at the end of the chain")
def _sink_kind(m: Measures, of: str, wait: str) -> Value:
    return next(((row.kind if (row := m.row(t.wait_id)) else None) or "" for t in m.select("sink")), None)


@fact("topology.cycles", "", "stacks", "cycles of threads that each wait for the next")
def _cycles(m: Measures, of: str, wait: str) -> Value:
    return float(len(m.topology.cycles)) if m.stack_samples else None


@fact("topology.cycle_moved", "", "second-sample", "a thread of the cycle moved within the window")
def _cycle_moved(m: Measures, of: str, wait: str) -> Value:
    moved = [m.by_node[n].stack_moved for cycle in m.topology.cycles for n in cycle]
    known = [x for x in moved if x is not None]
    return any(known) if known else None


@fact("topology.missing_roles", "", "stacks", "roles that this engine always has and nobody holds")
def _missing_roles(m: Measures, of: str, wait: str) -> Value:
    return float(len(m.topology.missing_roles)) if m.stack_samples else None


@fact("ranks.buckets", "", "peer-stacks", "different places at which ranks of one role stand")
def _rank_buckets(m: Measures, of: str, wait: str) -> Value:
    return float(len(m.topology.buckets)) if m.topology.buckets else None


@fact("ranks.odd", "ranks", "collectives", "ranks that launched another number of collectives than their peers")
def _ranks_odd(m: Measures, of: str, wait: str) -> Value:
    if m.collectives is None:
        return None
    apart = m.collectives.apart
    return float(apart.members) if apart and not apart.silent else 0.0


@fact("ranks.silent", "ranks", "collectives", "ranks that do not answer the collective library")
def _ranks_silent(m: Measures, of: str, wait: str) -> Value:
    if m.collectives is None:
        return None
    apart = m.collectives.apart
    return float(apart.members) if apart and apart.silent else 0.0


@fact("ranks.apart_seconds", "s", "collectives", "time for which these ranks have stood apart without any change")
def _ranks_apart_seconds(m: Measures, of: str, wait: str) -> Value:
    return m.collectives.apart.seconds if m.collectives and m.collectives.apart else None


@fact("ranks.apart", "", "collectives", "how the first rank that stands apart differs from its peers")
def _ranks_apart(m: Measures, of: str, wait: str) -> Value:
    return m.collectives.apart.words() if m.collectives and m.collectives.apart else None
