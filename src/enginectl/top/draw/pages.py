"""What opens over the screen: one thread's stack, a native sample."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from enginectl.render import words
from enginectl.render.chain import find_process, find_thread
from enginectl.top.draw.frames import frame_line
from enginectl.top.draw.style import ALARM, DIM, TROUBLE, of_class, share_bar, wrap
from enginectl.top.moment import NativeSample, Node
from enginectl.top.screenful import SPAN_SECONDS, Screenful, looks, shares

_LINES = 12


def strip(screen: Screenful, node: Node, width: int) -> Text:
    """The last minute of one thread from left (older) to right (now), one cell a slice of time."""
    seen, now = looks(screen, node), screen.moment.at
    line = Text(no_wrap=True)
    for cell in range(width):
        at = now - SPAN_SECONDS * (width - cell - 0.5) / width
        name = next((kind for began, ended, kind in seen if began <= at < ended), "")
        if not name and cell == width - 1 and seen:
            name = seen[-1][2]
        line.append(of_class(name).letter if name else " ", of_class(name).style if name else "")
    return line


def stack(screen: Screenful, node: Node, width: int, page: Callable[[str], str]) -> list[Text]:
    """Where one thread stands, its last minute, its frames innermost first, and the page of its wait point."""
    diagnosis = screen.diagnosis
    thread = find_thread(diagnosis, *node) if diagnosis else None
    process = find_process(diagnosis, node[0]) if diagnosis else None
    if thread is None or process is None:
        return [Text("This thread is no longer there.", ALARM)]
    owner = words.process(process.role, process.pid, process.rank)
    who = f"{words.thread_name(thread.name)} (tid {thread.tid})"
    lines = [Text(f"{who}, {words.clean(thread.role)} of {owner}", "bold")]
    state = words.os_state(screen.moment.os_states.get(process.pid, process.os_state))
    doing = f"Its process is {state}; it stands at" if state else f"It {words.wait_class(thread.wait_class)}"
    lines += [Text(f"{doing}: {words.clean(thread.wait_point)}", ALARM if state else "")]
    lines += [Text(line, DIM) for line in wrap(thread.meaning, width, 3)]
    lines += [Text(""), Text("60 s ago" + " " * max(1, width - 11) + "now", DIM)]
    lines += [strip(screen, node, width), share_bar(shares(screen, node), width), _shares(screen, node, width)]
    lines += [Text(""), Text("STACK, innermost first", "bold")]
    lines += [frame_line(frame, width) for frame in thread.frames] or [Text("no Python frame was read", DIM)]
    told = page(thread.wait_point)
    if told:
        lines += [Text(""), Text("THIS WAIT POINT", "bold")]
        lines += [Text(part) for raw in told.splitlines() for part in (wrap(raw, width, _LINES) or [""])]
    return lines


def _shares(screen: Screenful, node: Node, width: int) -> Text:
    parts = sorted(shares(screen, node).items(), key=lambda pair: -pair[1])
    line = Text(", ".join(f"{words.ratio(share)} {words.wait_class(name)}" for name, share in parts), DIM)
    line.truncate(width, overflow="ellipsis")
    return line


def native(sample: NativeSample, tid: int, width: int) -> list[Text]:
    """The frames of one thread with native ones, or why there are none."""
    if sample.trouble:
        return [Text(part, TROUBLE) for part in wrap(sample.trouble, width, _LINES)]
    frames = sample.threads.get(tid)
    if not frames:
        return [Text("This thread showed no frame.", TROUBLE)]
    paused = words.seconds(sample.pause_seconds)
    return [Text(f"One sample; the process stood still for {paused} at most.", DIM), Text("")] + [
        frame_line(frame, width) for frame in frames
    ]
