"""What is shown at one time, made of the moments of the last minute. Pure: no clock, no app."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from enginectl.model.diagnosed import Diagnosis
from enginectl.render import words
from enginectl.top.moment import Moment, Node

SPAN_SECONDS = 60.0
_LONGEST_SAMPLE_SECONDS = 20.0
STOPPED = "stopped"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the log: the verdict from this moment on."""

    at: float
    taken_at: str
    state: str
    finding: str
    code: str = ""
    summary: str = ""


class Screenful(msgspec.Struct, frozen=True, kw_only=True):
    """The last minute up to the moment shown, the log up to it, and where that is among all moments.

    `mode` is live, paused, replay or playing. `stale_seconds` is how long ago the newest moment came.
    """

    window: tuple[Moment, ...]
    log: tuple[Change, ...] = ()
    mode: str = "live"
    index: int = 0
    count: int = 0
    stale_seconds: float = 0.0

    @property
    def moment(self) -> Moment:
        """The moment shown."""
        return self.window[-1]

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Its diagnosis, None before the first."""
        return self.moment.diagnosis

    @property
    def verdict_seconds(self) -> float:
        """For how long the verdict has been what it is."""
        return max(0.0, self.moment.at - self.log[-1].at) if self.log else 0.0


def screenful(
    moments: Sequence[Moment], index: int, log: Sequence[Change], *, mode: str = "live", stale_seconds: float = 0.0
) -> Screenful:
    """The screen at `moments[index]`. Errors: IndexError when there is no such moment."""
    now = moments[index]
    first = index
    while first > 0 and moments[first - 1].at > now.at - SPAN_SECONDS:
        first -= 1
    return Screenful(
        window=tuple(moments[first : index + 1]),
        log=tuple(change for change in log if change.at <= now.at),
        mode=mode,
        index=index,
        count=len(moments),
        stale_seconds=stale_seconds,
    )


def change_of(moment: Moment, before: Change | None) -> Change | None:
    """The log entry that this moment adds, None when the verdict is still the same."""
    if moment.gone:
        state, finding, code = "gone", "engine gone", ""
        summary = moment.trouble.text if moment.trouble else ""
    elif moment.diagnosis is None:
        return None
    else:
        verdict = moment.diagnosis.verdict
        state, finding, code, summary = verdict.state, verdict.finding, verdict.code, verdict.summary
        if verdict.outcome != "decided":
            state = "open"
    if before is not None and (before.state, before.finding) == (state, finding):
        return None
    return Change(at=moment.at, taken_at=moment.taken_at, state=state, finding=finding, code=code, summary=summary)


def looks(screen: Screenful, node: Node) -> tuple[tuple[float, float, str], ...]:
    """(began, ended, wait class) of each look at one thread within the window, oldest first."""
    seen = [(m.at, _class_at(m, node)) for m in screen.window if m.classes is not None]
    ends = [at for at, _ in seen[1:]] + [screen.moment.at]
    return tuple(
        (at, max(at + 0.5, min(end, at + _LONGEST_SAMPLE_SECONDS)), name)
        for (at, name), end in zip(seen, ends, strict=True)
        if name
    )


def _class_at(moment: Moment, node: Node) -> str:
    """The wait class by the stack; a stopped or ended process does nothing, whatever its stack says."""
    state = moment.os_states.get(node[0], "")
    return STOPPED if state and state in "TtXZ" else (moment.classes or {}).get(node, "")


def shares(screen: Screenful, node: Node) -> dict[str, float]:
    """Share of the last minute's looks that a thread spent in each wait class; they add up to 1, or there is none."""
    total: dict[str, float] = {}
    for began, ended, name in looks(screen, node):
        total[name] = total.get(name, 0.0) + ended - began
    whole = sum(total.values())
    return {name: seconds / whole for name, seconds in total.items()} if whole else {}


def clock(taken_at: str, at: float) -> str:
    """Time of day of a moment, "12:03:04", or the seconds since the start when the recording carries no time."""
    return words.clean(taken_at[11:19]) if len(taken_at) >= 19 else f"+{words.seconds(at)}"


def uptime_seconds(moment: Moment) -> float | None:
    """How long the engine's oldest process ran when the moment was taken; None when that is not known."""
    started = [p.started_at for p in moment.processes if p.started_at is not None]
    if not started or not moment.taken_at:
        return None
    try:
        return max(0.0, datetime.fromisoformat(moment.taken_at).timestamp() - min(started))
    except ValueError:
        return None
