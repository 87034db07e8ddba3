"""The loop: look, judge, act, show. One look at a time; a slow one delays the next and none is made up for."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from threading import Event

import msgspec

from enginectl.diagnose.diagnose import diagnose, measures_of
from enginectl.knowledge.loader import Knowledge
from enginectl.model.diagnosed import Diagnosis
from enginectl.watch.actions import Runner
from enginectl.watch.engine import Watched
from enginectl.watch.exporter import Board, picture_of
from enginectl.watch.judge import Judge, Moment
from enginectl.watch.recorder import Recorder
from enginectl.watch.triggers import Trigger

JITTER = 0.1
Say = Callable[[str, dict[str, str]], None]
"""(kind of line, its fields): verdict, engine, trigger, action, recording."""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: between looks, of the window that is judged, and until the end (0: never)."""

    interval_seconds: float
    window_seconds: float
    duration_seconds: float = 0.0


class Loop:
    """Everything that one `watch` holds together."""

    def __init__(
        self, watched: Watched, knowledge: Knowledge, judge: Judge, recorder: Recorder, board: Board, say: Say
    ) -> None:
        self._watched = watched
        self._knowledge = knowledge
        self._judge = judge
        self._recorder = recorder
        self._board = board
        self._say = say
        self._runner = Runner()
        self._verdict = ""
        self._missing = ""

    def run(self, times: Times, stop: Event) -> None:
        """Until `stop` or the end of the time. Errors: NoSuchProcess for a given pid that was never there."""
        began = time.monotonic()
        try:
            while not stop.is_set():
                start = time.monotonic()
                self._look(times, start)
                self._report()
                if times.duration_seconds and time.monotonic() - began >= times.duration_seconds:
                    return
                pause = times.interval_seconds * random.uniform(1 - JITTER, 1 + JITTER)
                stop.wait(max(0.0, start + pause - time.monotonic()))
        finally:
            self._board.picture = None
            self._watched.let_go()
            self._recorder.close()
            self._report(closing=True)

    def _look(self, times: Times, start: float) -> None:
        if self._watched.pid is None and not self._find():
            return
        snapshot = self._watched.take()
        if snapshot is None:
            return self._gone()
        self._recorder.add(snapshot)
        recording = self._watched.ring.recording(times.window_seconds)
        if len(recording.snapshots) < 2:
            return  # one look tells no movement
        measures = measures_of(recording, self._knowledge)
        diagnosis = diagnose(recording, self._knowledge, measures)
        # the metrics first: who acts on a line finds there what the line says
        self._board.ticks += 1
        self._board.picture = picture_of(diagnosis, measures, snapshot.pause_seconds, time.monotonic() - start)
        self._tell(diagnosis)
        self._act(Moment(at=snapshot.offset_seconds, diagnosis=diagnosis, measures=measures))

    def _find(self) -> bool:
        if self._watched.find():
            self._missing = ""
            self._say("engine", {"pid": str(self._watched.pid), "event": "found"})
            return True
        if self._watched.why != self._missing:
            self._missing = self._watched.why
            self._say("engine", {"event": "missing", "reason": self._missing})
        return False

    def _gone(self) -> None:
        self._board.picture = None
        self._verdict = ""
        self._recorder.close()
        self._say("engine", {"event": "gone"})
        self._act(Moment(at=time.monotonic()))

    def _tell(self, diagnosis: Diagnosis) -> None:
        verdict = diagnosis.verdict
        if f"{verdict.state} {verdict.code}" != self._verdict:
            self._verdict = f"{verdict.state} {verdict.code}"
            self._say("verdict", _told(diagnosis))

    def _act(self, moment: Moment) -> None:
        for trigger in self._judge.fired(moment):
            self._board.fires[trigger.name] = self._board.fires.get(trigger.name, 0) + 1
            self._carry_out(trigger, moment)

    def _carry_out(self, trigger: Trigger, moment: Moment) -> None:
        told = {"trigger": trigger.name, "pid": str(self._watched.pid or ""), **_told(moment.diagnosis)}
        if trigger.recording:
            ring = self._watched.ring
            after = trigger.recording.after_seconds if moment.diagnosis else 0.0
            told["recording"] = self._recorder.start(trigger.name, ring, ring.head(), after)
        if trigger.log:
            self._say("trigger", {**told, "text": trigger.log.text})
        for action in (trigger.command, trigger.webhook):
            if action and (refused := self._runner.start(action, told)):
                self._say("action", {"trigger": trigger.name, "outcome": refused})

    def _report(self, *, closing: bool = False) -> None:
        """Say what has ended since the last look."""
        for outcome in self._runner.poll(closing=closing):
            self._say("action", {"outcome": outcome})
        lines, self._recorder.ended = self._recorder.ended, []
        for line in lines:
            self._say("recording", {"outcome": line})


def _told(diagnosis: Diagnosis | None) -> dict[str, str]:
    """A verdict as flat words, for lines, commands and webhooks."""
    if diagnosis is None:
        return {"state": "gone"}
    verdict = diagnosis.verdict
    culprit = verdict.culprit.pid if verdict.culprit else None
    return {
        "state": verdict.state,
        "culprit_pid": str(culprit or ""),
        "finding": verdict.finding,
        "code": verdict.code,
        "confidence": verdict.confidence,
        "summary": verdict.summary,
    }
