"""The live feed of `top`: samples one engine at a pace it can afford, and finds it again after a restart."""

from __future__ import annotations

import random
import threading
import time
from datetime import UTC, datetime

from enginectl.cli.top_facts import Node
from enginectl.cli.top_meter import Meter, cpu_seconds
from enginectl.cli.top_sampler import LEAST_LOOKS, Sampler
from enginectl.cli.top_target import Sought
from enginectl.errors import EnginectlError, NoSuchProcess
from enginectl.knowledge.loader import Knowledge
from enginectl.model.diagnosed import Diagnosis
from enginectl.model.observed import Recording
from enginectl.observe.record import Settings
from enginectl.top.moment import Moment, NativeSample, Publish, Trouble

TICK_SECONDS = 1.0
FIRST_LOOKS_SECONDS = 0.5
NEW_PROCESS_SECONDS = 10.0


class LiveFeed:
    """Publishes one moment a second; reads stacks as often as `Pacer` allows."""

    live = True

    def __init__(self, pid: int, settings: Settings, knowledge: Knowledge, name: str = "") -> None:
        self._pid = pid
        self._settings = settings
        self._knowledge = knowledge
        self._sought = Sought(knowledge, name)
        self._began = time.monotonic()
        self._sampler: Sampler | None = None
        self._diagnosis: Diagnosis | None = None
        self._meter = Meter()

    def run(self, publish: Publish, stop: threading.Event) -> None:
        """Watch until `stop` is set; an engine that ends is looked for again by name."""
        while not stop.is_set():
            try:
                self._watch(publish, stop)
            except NoSuchProcess as error:
                self._wait_for_return(error, publish, stop)
            except EnginectlError as error:
                publish(self._moment(trouble=Trouble(text=error.message, fix=error.fix)))
                stop.wait(5.0)
            finally:
                if self._sampler is not None:
                    self._sampler.close()

    def native(self, pid: int) -> NativeSample:
        """One sample with native frames."""
        sampler = self._sampler
        return sampler.native(pid) if sampler else NativeSample(trouble="no engine is attached now")

    def kept(self) -> Recording:
        """The last minutes as a recording. Errors: NoSuchProcess when nothing was attached yet."""
        if self._sampler is None:
            raise NoSuchProcess("no engine was seen yet")
        return self._sampler.kept()

    def _watch(self, publish: Publish, stop: threading.Event) -> None:
        sampler = self._sampler = Sampler(self._pid, self._settings, self._knowledge)
        self._sought.note(self._pid)
        due, members_at = 0.0, time.monotonic() + NEW_PROCESS_SECONDS
        while not stop.is_set():
            began, classes = time.monotonic(), None
            if began >= due:
                classes = self._look(sampler)
                step = self._meter.interval_seconds if sampler.looks >= LEAST_LOOKS else FIRST_LOOKS_SECONDS
                due = began + step * random.uniform(0.85, 1.15)
            cpu, runqueue, states = sampler.light()
            publish(self._moment(classes, cpu=cpu, runqueue=runqueue, states=states))
            if began >= members_at:
                members_at = began + NEW_PROCESS_SECONDS
                if self._sought.new_members(self._pid, sampler.processes):
                    return
            now = time.monotonic()
            stop.wait(max(0.05, min(due, began + TICK_SECONDS) - now))

    def _look(self, sampler: Sampler) -> dict[Node, str] | None:
        before, began = cpu_seconds(), time.monotonic()
        classes = sampler.look()
        self._meter.looked(began, before, sampler.pause_seconds)
        self._diagnosis = sampler.diagnosis or self._diagnosis
        return classes

    def _moment(
        self,
        classes: dict[Node, str] | None = None,
        *,
        cpu: dict[Node, float] | None = None,
        runqueue: dict[Node, float] | None = None,
        states: dict[int, str] | None = None,
        gone: bool = False,
        trouble: Trouble | None = None,
    ) -> Moment:
        sampler = self._sampler
        return Moment(
            at=time.monotonic() - self._began,
            taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
            diagnosis=self._diagnosis,
            processes=sampler.processes if sampler else (),
            classes=classes,
            cpu=cpu or {},
            runqueue=runqueue or {},
            os_states=states or {},
            model=sampler.model if sampler else "",
            gone=gone,
            trouble=trouble or (sampler.trouble() if sampler and not gone else None),
            pace=self._meter.pace(sampler.pause_seconds if sampler else 0.0),
        )

    def _wait_for_return(self, error: NoSuchProcess, publish: Publish, stop: threading.Event) -> None:
        trouble = Trouble(text=f"{error.message}; waiting for it to come back", fix=self._sought.told)
        while not stop.is_set():
            publish(self._moment(gone=True, trouble=trouble))
            found = self._sought.again()
            if found is not None:
                self._pid, self._diagnosis = found, None
                return
            stop.wait(2.0)
