"""Triggers as data: what a file may say, when a trigger fires, and how often."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.situations import FORWARD, LOOP_IDLE, T, engine, recording

from enginectl.diagnose.diagnose import diagnose, measures_of
from enginectl.errors import UsageError
from enginectl.knowledge.loader import load
from enginectl.watch.judge import Judge, Moment, holds
from enginectl.watch.triggers import When, load_plan

KNOWLEDGE = load("")


def moment(at: float, state: str = "R", stack: tuple[str, ...] = FORWARD) -> Moment:
    seen = recording(engine(T("EngineCoreLoop", [stack], cpu=0.9, state=state), state=state))
    return Moment(
        at=at,
        diagnosis=diagnose(seen, KNOWLEDGE),
        measures=measures_of(seen, KNOWLEDGE),
    )


def plan(tmp_path: Path, text: str):
    path = tmp_path / "triggers.toml"
    path.write_text(text)
    return load_plan(str(path))


STOPPED = '[[trigger]]\nname = "stopped"\nwhen = { finding = "process-stopped" }\nfor_seconds = 3\n'


def test_the_packaged_triggers_are_valid_and_record_a_hang() -> None:
    packaged = load_plan()
    assert {row.name for row in packaged.trigger} == {"hung", "gone"}
    assert all(row.recording for row in packaged.trigger)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonsense", "triggers.toml"),
        ('[[trigger]]\nname = "a"', "when"),
        ('[[trigger]]\nname = "a"\nwhen = { state = "hung", finding = "x" }', "one of"),
        ('[[trigger]]\nname = "a"\nwhen = {}', "one of"),
        ('[[trigger]]\nname = "a"\nwhen = { state = "sleepy" }', "sleepy"),
        ('[[trigger]]\nname = "a"\nwhen = { fact = "no.such", op = ">", value = 1 }', "no.such"),
        ('[[trigger]]\nname = "a"\nwhen = { fact = "window.seconds", op = "~", value = 1 }', "op"),
        ('[[trigger]]\nname = "a"\nwhen = { fact = "window.seconds", op = ">" }', "value"),
        ('[[trigger]]\nname = "../a"\nwhen = { state = "hung" }', "name"),
        ('[[trigger]]\nname = "a"\nwhen = { state = "hung" }\nevery = 3', "every"),
        ('[[trigger]]\nname = "a"\nwhen = { state = "hung" }\ncommand = { argv = [] }', "argv"),
        (
            '[[trigger]]\nname = "a"\nwhen = { state = "hung" }\ncommand = { argv = ["x"], timeout_seconds = 0 }',
            "timeout",
        ),
        ('[[trigger]]\nname = "a"\nwhen = { state = "hung" }\nwebhook = { url = "file:///etc/passwd" }', "http"),
        ('[[trigger]]\nname = "a"\nwhen = { state = "hung" }\n' * 2, "twice"),
        ("[limits]\ndisk_mebibytes = 0", "disk"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        plan(tmp_path, text)


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_plan(str(tmp_path / "none"))


def test_conditions_are_compared_as_rules_compare_them() -> None:
    busy, stopped, gone = moment(0.0), moment(0.0, state="T"), Moment(at=0.0)
    assert holds(When(finding="process-stopped|EC701"), stopped) is True
    assert holds(When(finding="EC608"), stopped) is True
    assert holds(When(finding="EC608"), busy) is False
    assert holds(When(state="hung|crashed"), stopped) is True
    assert holds(When(state="gone"), stopped) is False
    assert holds(When(state="gone"), gone) is True
    assert holds(When(finding="EC608"), gone) is False
    fact = When(fact="role.wait_ratio", of="engine-loop", wait="class:cpu", op=">=", value=0.5)
    assert holds(fact, busy) is True
    assert holds(fact, moment(0.0, stack=LOOP_IDLE)) is False
    assert holds(When(fact="device.busy_ratio", op="<", value=0.5), busy) is None


def names(judge: Judge, *moments: Moment) -> list[tuple[float, str]]:
    return [(each.at, trigger.name) for each in moments for trigger in judge.fired(each)]


def test_it_fires_once_an_episode_and_only_after_its_time(tmp_path: Path) -> None:
    judge = Judge(plan(tmp_path, STOPPED))
    stopped = [moment(float(at), state="T") for at in range(6)]
    assert names(judge, *stopped) == [(3.0, "stopped")]
    assert names(judge, moment(6.0), *[moment(float(at), state="T") for at in range(7, 12)]) == [(10.0, "stopped")]


def test_a_moment_that_cannot_be_judged_ends_no_episode(tmp_path: Path) -> None:
    text = (
        '[[trigger]]\nname = "idle-device"\nwhen = { fact = "device.busy_ratio", op = "<", value = 2 }\nfor_seconds = 2'
    )
    judge = Judge(plan(tmp_path, text))
    assert names(judge, *[moment(float(at)) for at in range(5)]) == []


def test_limits_hold_for_each_trigger_and_for_all(tmp_path: Path) -> None:
    text = "[limits]\nfires_per_hour = 3\n" + "".join(
        f'[[trigger]]\nname = "{name}"\nwhen = {{ finding = "process-stopped" }}\nmax_per_hour = {limit}\n'
        for name, limit in (("one", 1), ("many", 9))
    )
    judge = Judge(plan(tmp_path, text))
    stopped, busy = moment(0.0, state="T"), moment(0.0)
    seen = [(stopped if at % 2 else busy, float(at) * 10) for at in range(12)]
    fired = names(judge, *[Moment(at=at, diagnosis=m.diagnosis, measures=m.measures) for m, at in seen])
    assert fired == [(10.0, "one"), (10.0, "many"), (30.0, "many")]
    assert judge.suppressed > 0
    later = Moment(at=4000.0, diagnosis=stopped.diagnosis, measures=stopped.measures)
    judge.fired(Moment(at=3990.0, diagnosis=busy.diagnosis, measures=busy.measures))
    assert [t.name for t in judge.fired(later)] == ["one", "many"]
