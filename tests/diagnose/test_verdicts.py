"""Situations built by hand -> the one verdict. Each row is a claim about what an engineer should be told."""

from __future__ import annotations

import msgspec
import pytest
from tests import situations as s
from tests.situations import T, counters, engine, recording

from enginectl.diagnose.advice import advice_lines
from enginectl.diagnose.diagnose import diagnose
from enginectl.knowledge.loader import load
from enginectl.model.diagnosed import Diagnosis
from enginectl.model.observed import (
    CounterSample,
    GpuSample,
    ProcessFact,
    ProcessSample,
    Recording,
    Snapshot,
    StatedFacts,
    StatedProgress,
    StatedRequests,
)

KNOWLEDGE = load()
MOVING = (counters(running=8, steps=100, tokens=1000), counters(running=8, steps=140, tokens=1400))
FROZEN = (counters(running=8, steps=100, tokens=1000), counters(running=8, steps=100, tokens=1000))
EMPTY = (counters(steps=5), counters(steps=5))
LOOP_FORWARD = T("EngineCoreLoop", [s.FORWARD, (*s.FORWARD[:1], "x.py:layer", *s.FORWARD[1:])], cpu=0.95, state="R")
LOOP_IDLE = T("EngineCoreLoop", [s.LOOP_IDLE])
HOT_GPU = GpuSample(index=0, utilization_percent=98, memory_activity_percent=55, power_watts=520, power_limit_watts=700)
SPINNING_GPU = GpuSample(
    index=0, utilization_percent=100, memory_activity_percent=0, power_watts=120, power_limit_watts=700
)
COLD_GPU = GpuSample(index=0, utilization_percent=12, memory_activity_percent=2, power_watts=90, power_limit_watts=700)


def verdict(seen: Recording) -> Diagnosis:
    return diagnose(seen, KNOWLEDGE)


def put(file: str, function: str, *outer: str) -> tuple[str, ...]:
    return ("threading.py:wait", "queue.py:put", f"engine_core/{file}:{function}", *outer)


def stuck_process_wait(*loop: str) -> T:
    return T("EngineCoreLoop", [loop])


SITUATIONS: dict[str, tuple[Recording, str, str]] = {
    "nothing to do": (recording(engine(LOOP_IDLE), counters=EMPTY), "idle", "idle"),
    "forward on the CPU": (recording(engine(LOOP_FORWARD), counters=MOVING), "compute-bound", "busy"),
    "forward on a busy GPU": (
        recording(engine(LOOP_FORWARD), counters=MOVING, gpus=[HOT_GPU], device="cuda"), "compute-bound", "busy"),
    "scheduling while the GPU is cold": (
        recording(engine(T("EngineCoreLoop", [s.SCHEDULE], cpu=0.9, state="R")), counters=MOVING, gpus=[COLD_GPU],
                  device="cuda"), "scheduler-bound", "slow"),
    "scheduling without a GPU": (
        recording(engine(T("EngineCoreLoop", [s.SCHEDULE], cpu=0.9, state="R")), counters=MOVING),
        "scheduler-bound", "slow"),
    "output thread holds the GIL": (
        recording(engine(T("EngineCoreLoop", [s.FORWARD], cpu=0.1),
                         output=T("OutputProcessor", [("engine_core/output.py:detokenize_incrementally",
                                                       "engine_core/output.py:process_outputs",
                                                       "engine_core/output.py:run")], cpu=0.95, gil=1.0, state="R")),
                  counters=MOVING), "gil-contention", "slow"),
    "output thread busy without the GIL": (
        recording(engine(LOOP_IDLE,
                         output=T("OutputProcessor", [("engine_core/output.py:_compute_logprobs",
                                                       "engine_core/output.py:process_outputs",
                                                       "engine_core/output.py:run")], cpu=0.9, state="R")),
                  counters=MOVING), "output-bound", "slow"),
    "IPC thread encodes all the time": (
        recording(engine(LOOP_IDLE, ipc=T("IPCLoop", [("engine_core/ipc.py:_encode", "engine_core/ipc.py:_flush_outputs",
                                                       "engine_core/ipc.py:run")], cpu=0.9, state="R")),
                  counters=MOVING), "ipc-serialization-bound", "slow"),
    "send blocked": (
        recording(engine(LOOP_IDLE, ipc=T("IPCLoop", [("zmq/sugar/socket.py:send", "zmq/sugar/socket.py:send_multipart",
                                                       "engine_core/ipc.py:_send", "engine_core/ipc.py:run")])),
                  counters=FROZEN, seconds=12), "ipc-send-blocked", "hung"),
    "three bounded queues full": (
        recording(engine(T("EngineCoreLoop", [put("loop.py", "_put_outputs", *s.LOOP)]),
                         output=T("OutputProcessor", [put("output.py", "_put_final", "engine_core/output.py:run")]),
                         ipc=T("IPCLoop", [put("ipc.py", "put_input", "engine_core/ipc.py:run")])),
                  counters=FROZEN, seconds=12), "deadlock", "hung"),
    "idle threads, requests outstanding": (
        recording(engine(LOOP_IDLE), counters=(counters(running=1, steps=5), counters(running=1, steps=5)), seconds=12),
        "request-lost", "hung"),
    "steps that schedule nothing": (
        recording(engine(T("EngineCoreLoop", [s.YIELD, s.SCHEDULE], cpu=0.2)),
                  counters=(counters(waiting=3, steps=5), counters(waiting=3, steps=5)), seconds=12),
        "scheduler-livelock", "hung"),
    "forward that never comes back": (
        recording(engine(T("EngineCoreLoop", [s.FORWARD])), counters=FROZEN, seconds=12), "device-hang", "hung"),
    "spinning kernel": (
        recording(engine(T("EngineCoreLoop", [("torch/cuda/streams.py:synchronize",
                                               "engine_core/model.py:_wait_for_device",
                                               "engine_core/model.py:execute_model", *s.LOOP)], cpu=1.0, state="R")),
                  counters=FROZEN, gpus=[SPINNING_GPU], device="cuda", seconds=12), "device-hang", "hung"),
    "loop thread is gone": (
        recording(s.P(pid=100, title="engine_core",
                      threads=[T("OutputProcessor", [s.OUTPUT_IDLE]), T("IPCLoop", [s.IPC_IDLE])]), counters=FROZEN),
        "thread-died", "hung"),
    "stopped process": (recording(engine(LOOP_FORWARD, state="T"), counters=FROZEN), "process-stopped", "hung"),
    "preemptions": (
        recording(engine(LOOP_FORWARD),
                  counters=(counters(running=4, waiting=9, steps=10, tokens=10, preemptions=10, kv=0.97),
                            counters(running=4, waiting=9, steps=20, tokens=30, preemptions=40, kv=0.99))),
        "kv-cache-pressure", "slow"),
    "no core for the loop": (
        recording(engine(T("EngineCoreLoop", [s.FORWARD, (*s.FORWARD[:1], "x.py:y", *s.FORWARD[1:])], cpu=0.1,
                           runqueue=0.85, state="R")), counters=MOVING), "cpu-starved", "slow"),
    "stray thread spins": (
        recording(s.P(pid=100, title="engine_core", threads=[
            LOOP_FORWARD, T("OutputProcessor", [s.OUTPUT_IDLE]), T("IPCLoop", [s.IPC_IDLE]),
            T("Thread-9", [("stray.py:spin", "threading.py:run")], cpu=0.9, state="R")]), counters=MOVING),
        "hot-thread", "slow"),
    "loading weights": (
        recording(s.P(pid=100, title="engine_core", threads=[
            T("MainThread", [("safetensors/torch.py:load_file", "engine_core/model.py:load_weights",
                              "engine_core/core.py:__init__", "engine_core/core.py:run_engine_core")], cpu=0.8, tid=100)])),
        "starting-weights", "starting"),
}  # fmt: skip


@pytest.mark.parametrize("name", SITUATIONS)
def test_verdict(name: str) -> None:
    seen, finding, state = SITUATIONS[name]
    answer = verdict(seen).verdict
    assert (answer.finding, answer.state, answer.outcome) == (finding, state, "decided")


HEALTHY = ("nothing to do", "forward on the CPU", "forward on a busy GPU")


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_recordings_raise_no_warning(name: str) -> None:
    findings = verdict(SITUATIONS[name][0]).findings
    assert [f.code for f in findings if f.severity != "info"] == []


def test_a_dead_engine_is_never_called_idle_when_work_is_outstanding() -> None:
    for waiting, running in ((1, 0), (0, 1), (4, 4)):
        reads = (counters(running=running, waiting=waiting), counters(running=running, waiting=waiting))
        answer = verdict(recording(engine(LOOP_IDLE), counters=reads)).verdict
        assert answer.finding != "idle"
        assert answer.state != "idle"


def test_unanswered_clients_count_although_the_gauges_say_zero() -> None:
    seen = recording(engine(LOOP_IDLE), counters=EMPTY, seconds=12)
    last = seen.snapshots[-1]
    process = msgspec.structs.replace(last.processes[0], unanswered_requests=2, unanswered_seconds=11.0)
    snapshots = (*seen.snapshots[:-1], msgspec.structs.replace(last, processes=(process,)))
    assert verdict(msgspec.structs.replace(seen, snapshots=snapshots)).verdict.finding == "request-lost"


@pytest.mark.parametrize(
    ("age", "environment", "finding"),
    [(3.0, 20, "idle"), (11.0, 20, "request-lost"), (11.0, 0, "idle"), (200.0, 0, "idle")],
)
def test_a_client_that_may_wait_is_told_by_the_front_ends_keep_alive(
    age: float, environment: int, finding: str
) -> None:
    """Where the front end's environment was not read, its keep-alive time is not known, and nothing follows."""
    seen = recording(engine(LOOP_IDLE), counters=EMPTY, seconds=12)
    last = seen.snapshots[-1]
    process = msgspec.structs.replace(
        last.processes[0], unanswered_requests=0, unclear_requests=1, unclear_seconds=(age,)
    )
    snapshots = (*seen.snapshots[:-1], msgspec.structs.replace(last, processes=(process,)))
    front = ProcessFact(pid=99, title="python", engine="engine_core", role="frontend", environment_count=environment)
    seen = msgspec.structs.replace(seen, snapshots=snapshots, processes=(*seen.processes, front))
    answer = verdict(seen).verdict
    assert (answer.finding, answer.confidence) == (finding, "medium")


@pytest.mark.parametrize(("loop_cpu", "finding"), [(0.25, "gil-contention"), (0.9, "compute-bound")])
def test_the_holders_cpu_tells_contention_from_computing(loop_cpu: float, finding: str) -> None:
    """Beside a thread in long Python work, a loop that wants to run and cannot is told from one that computes."""
    output = T(
        "OutputProcessor", [("engine_core/detokenizer.py:decode", "engine_core/output.py:run")], cpu=0.75, gil=0.55
    )
    loop = T("EngineCoreLoop", [s.FORWARD], cpu=loop_cpu, state="S" if loop_cpu < 0.5 else "R")
    seen = recording(engine(loop, output), counters=MOVING, samples=20, seconds=6)
    assert verdict(seen).verdict.finding == finding


def test_stacks_that_may_be_torn_lower_the_confidence() -> None:
    seen = recording(engine(LOOP_FORWARD), counters=MOVING)
    before = verdict(seen).verdict
    last = seen.snapshots[-1]
    torn = tuple(msgspec.structs.replace(p, moving=True) for p in last.processes)
    seen = msgspec.structs.replace(
        seen, snapshots=(*seen.snapshots[:-1], msgspec.structs.replace(last, processes=torn))
    )
    after = verdict(seen).verdict
    assert (before.finding, before.confidence) == ("compute-bound", "high")
    assert (after.finding, after.confidence) == ("compute-bound", "medium")


def test_one_slow_step_is_not_a_hang() -> None:
    """The counters stand still within 2 s, but the stack moves: no hang is claimed."""
    answer = verdict(recording(engine(LOOP_FORWARD), counters=FROZEN)).verdict
    assert answer.finding not in ("device-hang", "deadlock", "request-lost")
    assert answer.state != "idle"


def test_without_counters_nothing_is_said_with_confidence() -> None:
    answer = verdict(recording(engine(LOOP_IDLE))).verdict
    assert answer.confidence == "low"


def test_an_unknown_place_of_the_loop_is_shown_not_guessed() -> None:
    loop = T("EngineCoreLoop", [("plugin.py:surprise", "engine_core/other.py:x")], state="R")
    answer = verdict(recording(engine(loop))).verdict
    assert (answer.finding, answer.outcome) in {("unknown-stack", "undecided"), ("insufficient-evidence", "undecided")}


def test_victims_point_at_the_sink() -> None:
    seen = verdict(SITUATIONS["forward that never comes back"][0])
    assert [link.thread_role for link in seen.chain][-1] == "engine-loop"
    assert seen.verdict.culprit is not None and seen.verdict.culprit.thread_role == "engine-loop"


def test_undecided_names_at_most_four_candidates_and_what_is_needed() -> None:
    seen = recording(engine(T("EngineCoreLoop", [s.FORWARD])), samples=1)
    answer = verdict(seen).verdict
    assert answer.outcome == "undecided" and answer.finding == "insufficient-evidence"
    assert 1 <= len(answer.candidates) <= 4 and answer.needs
    assert "device-hang" in answer.candidates or "compute-bound" in answer.candidates


def test_stated_facts_stand_in_for_what_a_dump_lacks() -> None:
    facts = StatedFacts(
        requests=StatedRequests(running=2, waiting=0),
        progress=StatedProgress(tokens_frozen_seconds=300, stuck_seconds=300),
    )
    seen = recording(engine(LOOP_IDLE), samples=1, stated=facts, made_by="read")
    assert verdict(seen).verdict.finding == "request-lost"


def test_the_same_recording_gives_the_same_diagnosis() -> None:
    seen = SITUATIONS["preemptions"][0]
    assert verdict(seen) == verdict(seen)


def test_a_process_without_a_known_engine_has_no_role() -> None:
    seen = Recording(processes=(ProcessFact(pid=7, title="cat"),), snapshots=())
    assert verdict(seen).verdict.outcome == "undecided"


@pytest.mark.parametrize(
    ("stated", "frozen", "words"),
    [
        (None, 12.0, "after 300 s without progress (--watchdog-timeout)."),
        ("600", 200.0, "after 600 s without progress (--watchdog-timeout). At most 400 s of them are left."),
        (None, 400.0, "That time is over: it should have ended already."),
        ("0", 12.0, "after 300 s"),
        ("nan", None, "after 300 s"),
        ("inf", 12.0, "after 300 s"),
    ],
)
def test_what_is_left_until_the_engine_ends_itself(stated: str | None, frozen: float | None, words: str) -> None:
    flags = {"--watchdog-timeout": stated} if stated else {}
    seen = Recording(processes=(ProcessFact(pid=1, engine="sglang", flags=flags),))
    (line,) = advice_lines(
        load(), seen, ["record-then-restart"], engine="sglang", version=None, culprit=None, frozen_seconds=frozen
    )
    assert words in line.text
    assert "{" not in line.text


@pytest.mark.parametrize(
    ("preempted", "finished", "running", "fires"), [(3, 1, 1, True), (2, 1, 200, False), (1, 0, 0, False)]
)
def test_preemptions_are_weighed_against_the_work(preempted: int, finished: int, running: int, fires: bool) -> None:
    def told_at(share: int) -> tuple[CounterSample, ...]:
        told = {
            "vllm:num_requests_running": running,
            "vllm:num_requests_waiting": 3,
            "vllm:num_preemptions_total": preempted * share,
            "vllm:request_success_total": finished * share,
            "vllm:generation_tokens_total": 1000 * share,
        }
        return tuple(CounterSample(name=name, value=float(value)) for name, value in told.items())

    core = ProcessFact(pid=1, title="VLLM::EngineCore", engine="vllm", role="engine-core")
    looks = tuple(
        Snapshot(
            offset_seconds=10.0 * share,
            processes=(ProcessSample(pid=1, os_state="S", cpu_seconds=1.0),),
            counters=told_at(share),
        )
        for share in (0, 1)
    )
    seen = diagnose(Recording(processes=(core,), snapshots=looks), load())
    assert ("kv-cache-pressure" in {f.finding for f in seen.findings}) is fires
