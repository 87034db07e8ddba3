"""Sampled stacks: lines of `py-spy record -f raw` (`a (x.py:1);b (y.py:2) 17`) and speedscope JSON."""

from __future__ import annotations

import functools
import re
from typing import Any

from enginectl.model.observed import Frame
from enginectl.read.naming import clean, split_title
from enginectl.read.pyspy_text import parse_frame, split_place
from enginectl.read.tokens import Layout, ProcessHead, Stack, ThreadHead

_THREAD = re.compile(r"(?:thread|Thread) \(?(0x[0-9a-fA-F]{1,16}|\d{1,18})\)?(?:: ?(.*))?$")
_PROCESS = re.compile(r'(?:process|Process) (\d{1,10}):? ?"?(.*?)"?$')
MAX_DEPTH = 4096


@functools.lru_cache(maxsize=8192)
def _frame(text: str) -> Frame:
    frame = parse_frame(text)
    return frame if frame is not None else Frame(function=clean(text, 4096), file="")


def _labels(first: str) -> tuple[ProcessHead | None, ThreadHead | None]:
    found = _PROCESS.match(first)
    if found:
        title, python = split_title(found.group(2))
        return ProcessHead(int(found.group(1)), title, python), None
    found = _THREAD.match(first)
    if found:
        ident, name = found.group(1), (found.group(2) or "").strip('" ')
        tid = int(ident, 16) if ident[:2] == "0x" else int(ident)
        return None, ThreadHead(Layout.PROFILE, tid=tid & 0x7FFF_FFFF_FFFF_FFFF, name=clean(name) or None, active=True)
    return None, None


def parse_line(body: str) -> Stack | None:
    """One collapsed stack (outermost first, then a count) as a Stack, innermost first; None when it is none."""
    if not body[-1:].isdigit():
        return None
    line, _, count = body.rpartition(" ")
    if not line or not count.isdigit() or len(count) > 12:
        return None
    names = line.split(";", MAX_DEPTH)
    if len(names) < 2 or not any(name.endswith(")") for name in names):
        return None
    process = thread = None
    while names and (process is None or thread is None):
        a_process, a_thread = _labels(names[0].strip())
        if a_process is None and a_thread is None:
            break
        process, thread = process or a_process, thread or a_thread
        names = names[1:]
    frames = tuple(_frame(name.strip()) for name in reversed(names) if name.strip())
    return Stack(frames, float(count), thread, process)


def _speedscope_frame(row: Any) -> Frame:
    row = row if isinstance(row, dict) else {}
    name, file, line = row.get("name"), row.get("file"), row.get("line")
    if not isinstance(file, str):
        return _frame(name) if isinstance(name, str) else Frame(function="?", file="")
    place, _ = split_place(file)
    return Frame(
        function=clean(name, 4096) if isinstance(name, str) else "?",
        file=place,
        line=line if isinstance(line, int) and 0 < line < 1 << 31 else None,
        native=".so" in place,
    )


def speedscope(document: dict[str, Any]) -> list[Stack]:
    """The sampled profiles of a speedscope document, in the order they were taken; unreadable parts are left out."""
    shared = document.get("shared")
    rows = shared.get("frames") if isinstance(shared, dict) else None
    frames = [_speedscope_frame(row) for row in rows] if isinstance(rows, list) else []
    stacks: list[Stack] = []
    profiles = document.get("profiles")
    for number, profile in enumerate(profiles if isinstance(profiles, list) else ()):
        if isinstance(profile, dict) and profile.get("type") == "sampled":
            stacks += _profile(profile, frames, number)
    return stacks


def _profile(profile: dict[str, Any], frames: list[Frame], number: int) -> list[Stack]:
    name_field = profile.get("name")
    title = name_field if isinstance(name_field, str) else ""
    found = re.search(r"[Pp]rocess (\d{1,10})", title)
    process = ProcessHead(int(found.group(1))) if found else None
    found = re.search(r'[Tt]hread (0x[0-9a-fA-F]{1,16}|\d{1,18})(?:.{0,3}"(.{0,200})")?', title)
    name, tid = clean(title) or None, -1 - number
    if found:
        ident = found.group(1)
        tid = (int(ident, 16) if ident[:2] == "0x" else int(ident)) & 0x7FFF_FFFF_FFFF_FFFF
        name = clean(found.group(2)) if found.group(2) else None
    head = ThreadHead(Layout.PROFILE, tid=tid, name=name, active=True)
    labels = {i for i, frame in enumerate(frames) if not frame.file and any(_labels(frame.function))}
    samples, weights = profile.get("samples"), profile.get("weights")
    stacks = []
    for index, sample in enumerate(samples if isinstance(samples, list) else ()):
        if not isinstance(sample, list):
            continue
        weight = weights[index] if isinstance(weights, list) and index < len(weights) else 1
        weight = float(weight) if isinstance(weight, int | float) and 0 <= weight < 1e12 else 1.0
        if sample and isinstance(sample[0], int) and sample[0] in labels:
            sample = sample[1:]
        known = [i for i in reversed(sample[:MAX_DEPTH]) if isinstance(i, int) and 0 <= i < len(frames)]
        stacks.append(Stack(tuple(frames[i] for i in known), weight, head, process))
    return stacks
