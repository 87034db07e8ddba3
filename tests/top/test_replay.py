"""Recordings as moments: where they are diagnosed, and what each moment carries."""

from __future__ import annotations

import threading

import msgspec
from tests.situations import FORWARD, LOOP_IDLE, SCHEDULE, T, counters, engine, recording

from enginectl.cli import pipeline
from enginectl.cli.top_facts import model_of, rates
from enginectl.cli.top_replay import ReplayFeed, stops
from enginectl.model.observed import CounterSample, HostSample, ProcessFact, Recording
from enginectl.top.moment import Moment

KNOWLEDGE = pipeline.knowledge_of("")


def moments(of: Recording) -> list[Moment]:
    got: list[Moment] = []
    ReplayFeed(of, KNOWLEDGE).run(got.append, threading.Event())
    return got


def busy(seconds: float, samples: int) -> Recording:
    loop = T("EngineCoreLoop", [FORWARD, FORWARD, SCHEDULE], cpu=0.9, runqueue=0.05, state="R")
    ends = [counters(running=4), counters(running=4, steps=40, tokens=900)]
    return recording(engine(loop), seconds=seconds, samples=samples, counters=ends)


def test_a_short_recording_has_the_verdict_of_doctor_at_every_place() -> None:
    of = busy(2.0, 5)
    got = moments(of)
    verdict = pipeline.diagnosed(of, KNOWLEDGE).verdict
    assert [m.diagnosis.verdict.finding for m in got if m.diagnosis] == [verdict.finding] * 5


def test_each_moment_has_the_classes_of_its_own_instant() -> None:
    classes = [m.classes[100, 100] for m in moments(busy(2.0, 5)) if m.classes]
    assert len(classes) == 5 and set(classes) == {"cpu"}
    idle = moments(recording(engine(T("EngineCoreLoop", [LOOP_IDLE]))))
    assert idle[0].classes is not None and idle[0].classes[100, 100] == "idle"


def test_rates_are_those_since_the_moment_before() -> None:
    got = moments(busy(2.0, 5))
    assert got[0].cpu == {}
    assert abs(got[3].cpu[100, 100] - 0.9) < 1e-6 and abs(got[3].runqueue[100, 100] - 0.05) < 1e-6


def test_a_long_recording_is_diagnosed_where_counters_were_read_and_not_too_often() -> None:
    of = busy(3000.0, 3001)
    with_ends = tuple(
        msgspec.structs.replace(s, host=HostSample()) if i % 3 == 0 else s for i, s in enumerate(of.snapshots)
    )
    places = stops(with_ends)
    assert places[0] >= 15 and places[-1] == 3000 and len(places) <= 302
    assert all(place % 3 == 0 for place in places[:-1])


def test_a_stopped_replay_stops() -> None:
    stop = threading.Event()
    stop.set()
    got: list[Moment] = []
    ReplayFeed(busy(2.0, 5), KNOWLEDGE).run(got.append, stop)
    assert got == []


def test_a_recording_cannot_be_sampled_again() -> None:
    assert "recording" in ReplayFeed(busy(2.0, 5), KNOWLEDGE).native(100).trouble


def test_rates_need_two_readings_and_time() -> None:
    assert rates({}, {(1, 1): (5.0, 1.0, 0.0)}) == ({}, {})
    assert rates({(1, 1): (5.0, 1.0, 0.0)}, {(1, 1): (5.0, 2.0, 0.0)}) == ({}, {})
    assert rates({(1, 1): (5.0, 1.0, None)}, {(1, 1): (7.0, 2.0, 0.5)}) == ({(1, 1): 0.5}, {})


def test_the_model_is_named_by_counters_then_flags_then_the_command() -> None:
    fact = ProcessFact(pid=1, flags={"--model": "m"}, command=("vllm", "serve", "Qwen/Q", "--port", "1"))
    label = CounterSample(name="vllm:num_requests_running", value=0, labels={"model_name": "n"})
    assert model_of([fact], [label]) == "n"
    assert model_of([fact], []) == "m"
    assert model_of([msgspec.structs.replace(fact, flags={})], []) == "Qwen/Q"
    assert model_of([ProcessFact(pid=1, command=("vllm", "serve"))], []) == ""
