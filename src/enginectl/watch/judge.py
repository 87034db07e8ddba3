"""When a trigger fires: its condition, for how long, once per episode, within its limits."""

from __future__ import annotations

import msgspec

from enginectl.diagnose.evaluate import check
from enginectl.diagnose.measures import Measures
from enginectl.model.diagnosed import Diagnosis
from enginectl.watch.limits import PerHour
from enginectl.watch.triggers import GONE, Plan, Trigger, When


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """What is known at one time. `diagnosis` and `measures` are None when the engine has gone."""

    at: float
    diagnosis: Diagnosis | None = None
    measures: Measures | None = None


def holds(when: When, moment: Moment) -> bool | None:
    """Whether the condition holds; None when it cannot be told."""
    if moment.diagnosis is None or moment.measures is None:
        return GONE in when.state.split("|")
    if when.state:
        return moment.diagnosis.verdict.state in when.state.split("|")
    if when.finding:
        wanted = when.finding.split("|")
        return any(f.finding in wanted or f.code in wanted for f in moment.diagnosis.findings)
    return check(moment.measures, when.condition).holds


class _Clock:
    """Since when one trigger's condition holds, and whether it has fired for it."""

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self.since: float | None = None
        self.fired = False
        self.limit = PerHour(trigger.max_per_hour)

    def due(self, moment: Moment) -> bool:
        """Whether the trigger is due. A moment that cannot be judged neither starts nor ends an episode."""
        answer = holds(self.trigger.when, moment)
        if answer is None:
            return False
        if not answer:
            self.since, self.fired = None, False
            return False
        self.since = moment.at if self.since is None else self.since
        return not self.fired and moment.at - self.since >= self.trigger.for_seconds


class Judge:
    """All triggers of a plan over time."""

    def __init__(self, plan: Plan) -> None:
        self._clocks = [_Clock(trigger) for trigger in plan.trigger]
        self._limit = PerHour(plan.limits.fires_per_hour)
        self.suppressed = 0

    def fired(self, moment: Moment) -> list[Trigger]:
        """The triggers that fire now. One that is over a limit is counted in `suppressed` and keeps quiet."""
        result: list[Trigger] = []
        for clock in self._clocks:
            if not clock.due(moment):
                continue
            clock.fired = True
            if clock.limit.allows(moment.at) and self._limit.allows(moment.at):
                clock.limit.grant(moment.at)
                self._limit.grant(moment.at)
                result.append(clock.trigger)
            else:
                self.suppressed += 1
        return result
