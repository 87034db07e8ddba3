"""The replay feed of `top`: every snapshot of a recording as a moment, with the diagnosis of its last seconds."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec

from enginectl.cli import pipeline
from enginectl.cli.top_facts import classes_of, model_of, rates, readings_of
from enginectl.cli.top_sampler import LEAST_LOOKS, WINDOW_SECONDS
from enginectl.knowledge.loader import Knowledge
from enginectl.model.diagnosed import Diagnosis
from enginectl.model.observed import Recording, Snapshot
from enginectl.top.moment import Moment, NativeSample, Publish

MOST_DIAGNOSES = 300
"""A long recording is diagnosed at so many places; in between the last verdict stands."""


def stops(snapshots: Sequence[Snapshot]) -> tuple[int, ...]:
    """Indexes at which to diagnose: the end of the first window, then where counters or host facts were read.

    A recording no longer than one window has one stop, its end: that is the verdict of `doctor --from`.
    """
    last = len(snapshots) - 1
    full = [
        i
        for i, s in enumerate(snapshots[:-1])
        if s.offset_seconds - snapshots[0].offset_seconds >= WINDOW_SECONDS and i + 1 >= LEAST_LOOKS
    ]
    ends = [i for i in full if snapshots[i].host is not None or snapshots[i].counters is not None] or full
    step = max(1, -(-len(ends) // MOST_DIAGNOSES))
    return (*ends[::step], last)


class ReplayFeed:
    """A recording, moment by moment."""

    live = False

    def __init__(self, recording: Recording, knowledge: Knowledge) -> None:
        self._recording = recording
        self._knowledge = knowledge
        self._diagnoses: dict[int, Diagnosis] = {}

    def native(self, pid: int) -> NativeSample:
        """There is no process behind a recording."""
        return NativeSample(trouble="A recording cannot be sampled again; enginectl record --native keeps such frames.")

    def run(self, publish: Publish, stop: threading.Event) -> None:
        """Publish every snapshot in order."""
        snapshots = self._recording.snapshots
        places = stops(snapshots) if snapshots else ()
        at = 0
        for index, snapshot in enumerate(snapshots):
            if stop.is_set():
                return
            while at + 1 < len(places) and places[at + 1] <= index:
                at += 1
            publish(self._moment(index, snapshot, places[at]))

    def _diagnosis(self, index: int) -> Diagnosis:
        if index not in self._diagnoses:
            snapshots = self._recording.snapshots[: index + 1]
            recent = [s for s in snapshots if s.offset_seconds > snapshots[-1].offset_seconds - WINDOW_SECONDS]
            chosen = snapshots[-max(LEAST_LOOKS, len(recent)) :]
            if index == len(self._recording.snapshots) - 1 and index == stops(self._recording.snapshots)[0]:
                chosen = snapshots
            wall = chosen[-1].offset_seconds - chosen[0].offset_seconds
            window = msgspec.structs.replace(self._recording, snapshots=chosen, wall_seconds=wall)
            self._diagnoses = {index: pipeline.diagnosed(window, self._knowledge)}
        return self._diagnoses[index]

    def _moment(self, index: int, snapshot: Snapshot, place: int) -> Moment:
        before = self._recording.snapshots[index - 1] if index else None
        cpu, runqueue = rates(readings_of(before), readings_of(snapshot)) if before else ({}, {})
        earlier = self._recording.snapshots[: index + 1]
        counters = next((s.counters for s in reversed(earlier[-20:]) if s.counters), ())
        return Moment(
            at=snapshot.offset_seconds,
            taken_at=snapshot.taken_at,
            diagnosis=self._diagnosis(place),
            processes=self._recording.processes,
            classes=classes_of(self._recording, snapshot, self._knowledge),
            cpu=cpu,
            runqueue=runqueue,
            os_states={p.pid: p.os_state for p in snapshot.processes if p.os_state},
            model=model_of(self._recording.processes, counters),
        )
