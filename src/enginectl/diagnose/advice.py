"""Advice rows -> lines to show: only flags that exist in the running version and are not already at that value."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from enginectl.knowledge.loader import Knowledge
from enginectl.knowledge.schema import Advice
from enginectl.model.diagnosed import AdviceLine, Culprit
from enginectl.model.observed import Recording

WORTH_A_COUNTDOWN = 0.2
"""A hang that was seen for less of the watchdog's time may have begun long before: what is left is not known."""


def version_key(text: str) -> tuple[int, ...]:
    """`0.27.1rc2` -> (0, 27, 1): numbers only, for comparing spans."""
    return tuple(int(n) for n in re.findall(r"\d+", text.split("+")[0])[:3])


def in_span(version: str | None, span: str) -> bool:
    """Whether `version` lies in `A-B`, `A-` or `-B`; an empty span or an unknown version is not excluded by it."""
    if not span:
        return True
    if not version:
        return False
    low, _, high = span.partition("-")
    key = version_key(version)
    return (not low or key >= version_key(low)) and (not high or key <= version_key(high))


def _flags(recording: Recording) -> dict[str, str]:
    flags: dict[str, str] = {}
    for fact in recording.processes:
        for flag, value in fact.flags.items():
            flags.setdefault(flag, value)
    return flags


def _rows(knowledge: Knowledge, engine: str | None, advice_id: str) -> list[Advice]:
    own = knowledge.advice.get(engine or "", ())
    return [row for row in (*own, *knowledge.advice.get("general", ())) if row.id == advice_id]


def advice_lines(
    knowledge: Knowledge,
    recording: Recording,
    ids: Sequence[str],
    *,
    engine: str | None,
    version: str | None,
    culprit: Culprit | None,
    frozen_seconds: float | None = None,
) -> tuple[AdviceLine, ...]:
    """The advice that applies here, in the rule's order, each id once.

    `frozen_seconds` is for how long at least nothing has moved: it tells how long is left until the engine ends itself.
    """
    flags = _flags(recording)
    known = recording.target_pid or (culprit.pid if culprit else None)
    pid = str(known) if known and known > 0 else "PID"
    words = {"pid": pid, "culprit_pid": str(culprit.pid) if culprit and (culprit.pid or 0) > 0 else pid}
    words |= _watchdog(knowledge, engine, flags, frozen_seconds)
    lines: list[AdviceLine] = []
    for advice_id in dict.fromkeys(ids):
        for row in _rows(knowledge, engine, advice_id):
            if row.flag and (not in_span(version, row.versions) or flags.get(row.flag) == (row.value or "true")):
                continue
            lines.append(
                AdviceLine(
                    id=row.id,
                    text=_fill(row.text, words),
                    expect=_fill(row.expect, words),
                    command=_fill(row.command, words),
                )
            )
            break
    return tuple(lines)


def _watchdog(
    knowledge: Knowledge, engine: str | None, flags: dict[str, str], frozen_seconds: float | None
) -> dict[str, str]:
    """When the engine ends itself, as `watchdog_seconds`, and how long is left at most, as `watchdog_left`."""
    row = knowledge.engines.get(engine or "")
    if row is None or row.watchdog_seconds is None:
        return {}
    try:
        limit = float(flags.get(row.watchdog_flag, row.watchdog_seconds))
    except ValueError:
        limit = row.watchdog_seconds
    if not 0 < limit < math.inf:
        limit = row.watchdog_seconds
    left = ""
    if frozen_seconds is not None and frozen_seconds >= limit:
        left = " That time is over: it should have ended already."
    elif frozen_seconds is not None and frozen_seconds >= WORTH_A_COUNTDOWN * limit:
        left = f" At most {limit - frozen_seconds:.0f} s of them are left."
    return {"watchdog_seconds": f"{limit:g}", "watchdog_left": left}


def _fill(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace("{" + name + "}", value)
    return text
