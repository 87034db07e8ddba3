"""Facts of the engine clock and the device clock."""

from __future__ import annotations

from enginectl.diagnose.fact import FACTS, Value, fact
from enginectl.diagnose.measures import Measures

FEWEST_PREEMPTIONS = 1.5
"""One preemption within the window is chance; from the second on they are counted."""


def _engine(name: str, unit: str, meaning: str) -> None:
    def measure(m: Measures, of: str, wait: str) -> Value:
        value: Value = getattr(m.engine, name)
        return value

    fact(f"engine.{name}", unit, "engine-counters", meaning)(measure)


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
_engine("unclear_requests", "requests", "client connections of which it cannot be told whether an answer is owed")
_engine("owed_by_keep_alive", "", "only the age of client connections tells that an answer is owed")
_engine("unanswered_seconds", "s", "age of the oldest request without any answer")
_engine("stalled_engines", "", "data-parallel engines with requests whose own counters stood still")
_engine("device_is_cpu", "", "the model runs on the CPU")
_engine("steps_total", "", "steps since the engine started")


@fact("engine.frozen", "", "engine-counters", "work is outstanding and no progress counter moved")
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


@fact("engine.at_rest", "", "proc", "nothing is outstanding, or nothing is known of it and every engine thread rests")
def _at_rest(m: Measures, of: str, wait: str) -> Value:
    if m.engine.outstanding is not None:
        return m.engine.outstanding == 0
    return FACTS["threads.all_idle"].measure(m, "", "") is True


@fact("engine.owed_seconds", "s", "engine-counters", "how long an answer has been owed without any movement")
def _owed(m: Measures, of: str, wait: str) -> Value:
    clock = m.engine
    gauges = (clock.running or 0) + (clock.waiting or 0)
    frozen = clock.frozen_seconds if gauges > 0 else None
    known = [v for v in (clock.unanswered_seconds, frozen) if v is not None]
    if known:
        return max(known)
    return None if clock.outstanding is None else 0.0


@fact("engine.seen_moving", "", "proc", "progress was seen, whatever could not be read")
def _seen_moving(m: Measures, of: str, wait: str) -> Value:
    return m.engine.progress is True


@fact("engine.outstanding_known", "", "proc", "whether any source tells how many requests are outstanding")
def _outstanding_known(m: Measures, of: str, wait: str) -> Value:
    return m.engine.outstanding is not None


@fact("engine.counters_known", "", "proc", "whether the engine's counters could be read")
def _counters_known(m: Measures, of: str, wait: str) -> Value:
    return m.engine.progress is not None


@fact("engine.abort_ratio", "ratio", "engine-counters", "aborted requests among all that ended")
def _abort_ratio(m: Measures, of: str, wait: str) -> Value:
    aborted, finished = m.engine.aborted_per_second, m.engine.finished_per_second
    if aborted is None or finished is None:
        return None
    # exporters count aborts among the finished ones
    total = max(finished, aborted)
    return aborted / total if total > 0 else 0.0


@fact("engine.preempted_ratio", "ratio", "engine-counters", "preemptions over preempted, finished and running requests")
def _preempted_ratio(m: Measures, of: str, wait: str) -> Value:
    preempted, finished = m.engine.preemptions_per_second, m.engine.finished_per_second
    window, running = m.engine.window_seconds, m.engine.running
    if preempted is None or finished is None or window is None or running is None:
        return None
    count = preempted * window
    return count / (count + finished * window + running) if count >= FEWEST_PREEMPTIONS else 0.0


@fact("endpoint.state", "", "engine-counters", "how /metrics answered")
def _endpoint_state(m: Measures, of: str, wait: str) -> Value:
    states = [s.endpoint.state for s in m.recording.snapshots if s.endpoint]
    return states[-1] if states else None


def _device(name: str, unit: str, meaning: str) -> None:
    def measure(m: Measures, of: str, wait: str) -> Value:
        value: Value = getattr(m.device, name)
        return value

    fact(f"device.{name}", unit, "gpu", meaning)(measure)


_device("busy_ratio", "ratio", "share of real work on the GPUs")
_device("utilization_ratio", "ratio", "GPU utilisation")
_device("power_share", "ratio", "GPU power over its limit")
_device("memory_activity_ratio", "ratio", "GPU memory activity")
_device("spinning", "", "a GPU is utilised at low power without memory traffic")
_device("fault", "", "a GPU reports an error")


@fact("device.known", "", "proc", "whether any GPU could be read")
def _device_known(m: Measures, of: str, wait: str) -> Value:
    return m.device.utilization_ratio is not None
