"""The top of the screen: which engine, since when, and the verdict with its age."""

from __future__ import annotations

from rich.text import Text

from enginectl.render import words
from enginectl.top.draw.style import ALARM, BANNER_STYLES, DIM, OPEN_STYLE, TROUBLE, fit, wrap
from enginectl.top.screenful import Screenful, clock, uptime_seconds

STALE_SECONDS = 3.0


def header(screen: Screenful, width: int, *, lines: int = 4) -> list[Text]:
    """The engine, the banner, the sentence and, when something keeps the view from seeing, that too.

    Shape: exactly `lines` lines (at least 3) of at most `width` columns.
    """
    drawn = [_engine(screen, width), _banner(screen, width)]
    room = lines - len(drawn)
    trouble = _trouble(screen, width)
    sentence = wrap(_sentence(screen), width - 2, room - (1 if trouble else 0))
    drawn += [Text(f" {line}", no_wrap=True) for line in sentence]
    drawn += [trouble] if trouble else []
    drawn += [Text("")] * (lines - len(drawn))
    return drawn[:lines]


def _engine(screen: Screenful, width: int) -> Text:
    moment = screen.moment
    rows = screen.diagnosis.processes if screen.diagnosis else ()
    name = next((r.engine for r in rows if r.engine), "") or next((p.engine for p in moment.processes if p.engine), "")
    version = next((r.engine_version for r in rows if r.engine_version), "")
    root = moment.processes[0].pid if moment.processes else next((r.pid for r in rows), None)
    up = uptime_seconds(moment)
    parts = [words.clean(name or "engine not known") + (f" {words.clean(version)}" if version else "")]
    parts += [words.clean(moment.model)] if moment.model else []
    parts += [f"pid {root}"] if root is not None and root > 0 else []
    parts += [f"up {words.seconds(float(round(up)))}"] if up is not None else []
    right = _when(screen)
    left = fit("  ".join(parts), max(0, width - len(right) - 3))
    line = Text(no_wrap=True)
    line.append(f" {left} ", "bold")
    style = "reverse bold" if screen.mode == "paused" else ""
    line.append(f"{right} ", style)
    return line


def _when(screen: Screenful) -> str:
    moment = screen.moment
    time = clock(moment.taken_at, moment.at)
    if screen.mode == "live":
        return f"live {time}"
    place = f"{screen.index + 1}/{screen.count}"
    return {"paused": f"PAUSED {time}", "playing": f"replay {place} {time}"}.get(
        screen.mode, f"REPLAY STOPPED {place} {time}"
    )


def _banner(screen: Screenful, width: int) -> Text:
    moment, diagnosis = screen.moment, screen.diagnosis
    age = f"for {words.seconds(float(round(screen.verdict_seconds)))}"
    if moment.gone:
        text, style = f"GONE  {age}", BANNER_STYLES["gone"]
    elif diagnosis is None:
        text, style = ("TROUBLE" if moment.trouble else "LOOKING  the first samples are on their way"), OPEN_STYLE
    else:
        verdict = diagnosis.verdict
        name = f"{words.clean(verdict.finding)} {words.clean(verdict.code)}"
        text = f"{words.headline(verdict)}  {name} · {words.confidence(verdict.confidence)} · {age}"
        style = BANNER_STYLES.get(verdict.state, OPEN_STYLE) if verdict.outcome == "decided" else OPEN_STYLE
    if screen.mode == "live" and screen.stale_seconds > STALE_SECONDS:
        text += f" · last look {words.seconds(float(round(screen.stale_seconds)))} ago"
    return Text(fit(f" {text}", width), style, no_wrap=True)


def _sentence(screen: Screenful) -> str:
    if screen.diagnosis is None or screen.moment.gone:
        return ""
    verdict = screen.diagnosis.verdict
    told = words.clean(verdict.summary)
    if verdict.outcome != "decided" and verdict.candidates:
        told += f" Candidates: {words.listing([words.clean(c) for c in verdict.candidates])}."
    return told


def _trouble(screen: Screenful, width: int) -> Text | None:
    found = screen.moment.trouble
    if found is None:
        return None
    line = Text(" ", no_wrap=True)
    line.append(words.clean(found.text), ALARM if screen.moment.gone else TROUBLE)
    if found.fix:
        line.append(f"  {words.clean(found.fix)}", DIM)
    line.truncate(width, overflow="ellipsis")
    return line
