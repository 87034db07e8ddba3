"""Hand-made forms: frames without header, lone functions, lone places, arrow chains, counted trees, short headings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from enginectl.model.observed import Frame
from enginectl.read.naming import clean, full_title, rank_tags
from enginectl.read.pyspy_text import is_native, parse_frame, split_place
from enginectl.read.tokens import Layout, ProcessHead, ThreadHead

_FUNCTION = re.compile(r"[A-Za-z_~<][\w.:~<>]{0,400}(?:\(\))?$")
_NAME_PLACE = re.compile(
    r"(?!at |from |in )([A-Za-z_<][\w.:<>]{0,400})(?:\(\))?(?: at| @|,)?\s{1,80}\(?([\w./…<>-]{1,400}:\d{1,9})\)?$"
)
_PLACE_NAME = re.compile(
    r"([\w./…-]{1,400}\.(?:pyx?|cpp|cc|cu|c|h|rs):\d{1,9})(?: in |: ?| {1,4}|\t)([A-Za-z_<][\w.:<>]{0,400})(?:\(\))?$"
)
_PLACE = re.compile(r"\(?([\w./…-]{1,400}\.(?:pyx?|cpp|cc|cu|c|h|rs):\d{1,9})\)?$")
_REMARK = re.compile(r"(\S.{0,400}?\([^()\s]{1,400}\))\s{1,40}(?:\([^()]{0,200}\)|<?[-=#<←]{1,4}.{0,200})$")
_COUNTED = re.compile(r"(\d{1,9}(?:\.\d{1,3})?%?)\s{1,20}([A-Za-z_<].{0,800})$")
_SHARE = re.compile(r"\s{1,20}\(\d{1,3}(?:\.\d{1,3})?%[^()]{0,100}\)$")
_ARROW = re.compile(r"\s{0,8}(?:→|->|=>|⟶|➜)\s{0,8}")
_BACK_ARROW = re.compile(r"\s{0,8}(?:←|<-|⟵)\s{0,8}")
_LESS, _MORE = re.compile(r" < "), re.compile(r" > ")
_LABEL = re.compile(r"[\w ()#.,/-]{0,60}:\s+(?=\S)")
_LINK = re.compile(r"`?([A-Za-z_~<][\w.:~<>]{0,200})(?:\(\))?(?: {0,2}\(([^()]{1,200})\)| {1,2}@ {0,1}(\S{1,200}))?`?$")
_ROOTS = re.compile(
    r"(?:.*[.:])?(?:main|run|<module>|_bootstrap\w*|\w*_loop(?:_\w+)?|event_loop\w*|run_\w+|worker_main|serve|start|\w*_main"
    r"|main_loop|generate|step|run_engine_core|__main__)$"
)
_HEADING = re.compile(
    r"(?:#+ )?(?:(?:[\w: (./-]{1,60}?)?\b(?i:pid)[ =:#]{0,3}(\d{1,10})\b.{0,60}"
    r"|((?:VLLM|sglang|ray)::[\w.]{1,80}(?:\(\))?)"
    r"|((?:[Rr]ank|TP|DP|PP|EP|[Ww]orker)[ _-]?(?:TP|DP|PP|EP)?\d{1,6}\b[^:]{0,40}))\s?:$"
)
_RANKED = re.compile(r"(?:[Rr]ank|[Ww]orker|TP|DP|PP|EP)[ _-]?(?:TP|DP|PP|EP)?\d{1,6}$")
_THREAD_HEADING = re.compile(r"((?:MainThread|Thread-\d{1,6}(?: \([\w.]{1,80}\))?))\s?:$")
_PID_ONLY = re.compile(r"(?:PID|[Pp]id|process) ?[:=#]? ?(\d{1,10})$")
_COMMAND = re.compile(
    r"(?:^|[$#>`\s])(?:py-spy (?:dump|top|record)|gdb|pystack remote)\b.{0,200}?(?:-p|--pid|remote)[ =](\d{1,10})\b"
)


def parse_function(body: str) -> Frame | None:
    """A lone function name, a lone `file.py:12`, or `name  file.py:12`; a frame only where other frames stand."""
    found = _PLACE.match(body)
    if found:
        file, line = split_place(found.group(1))
        return Frame(function="", file=file, line=line, native=is_native(file, line))
    found = _NAME_PLACE.match(body)
    if found:
        file, line = split_place(found.group(2))
        return Frame(function=clean(found.group(1)), file=file, line=line, native=is_native(file, line))
    found = _PLACE_NAME.match(body)
    if found:
        file, line = split_place(found.group(1))
        return Frame(function=clean(found.group(2)), file=file, line=line, native=is_native(file, line))
    if (
        not _FUNCTION.match(body)
        or body.endswith(".")
        or not (body[0].islower() or "_" in body or "::" in body or "<" in body)
    ):
        return None
    return Frame(function=clean(body.removesuffix("()")), file="", native="::" in body)


def parse_remarked(body: str) -> Frame | None:
    """A frame followed by a remark, `f (a.py:1)  <- here` or `f (a.py:1) (99 % of samples)`; else None."""
    found = _REMARK.match(body)
    return parse_frame(found.group(1)) if found else None


def parse_counted(body: str) -> Frame | None:
    """`2998  execute_model` or `53%  wait (threading.py)`: the head of a branch of a sample tree; else None."""
    found = _COUNTED.match(body)
    if not found:
        return None
    text = _SHARE.sub("", found.group(2)).strip()
    frame = parse_frame(text)
    if frame is None and ("_" in text or "." in text):
        frame = parse_function(text)
    return frame


def parse_chain(body: str) -> tuple[Frame, ...] | None:
    """An arrow chain as frames, innermost first; None when the line is no such chain.

    `←` points at the caller's callee. `→` is read either way: the end that is a known outermost function decides,
    and without one the first name is the innermost.
    """
    body = _without_label(body).strip("`*- ")
    arrow = next((a for a in (_ARROW, _BACK_ARROW, _LESS, _MORE) if a.search(body)), _ARROW)
    strict = arrow is _LESS or arrow is _MORE  # also signs of arithmetic: only certain names count
    backwards = arrow is _BACK_ARROW or arrow is _LESS
    links = arrow.split(body)
    links = [link for link in links if link.strip(" .…")]
    if not 2 + strict <= len(links) <= 200:
        return None
    frames = []
    for link in links:
        found = _LINK.match(link.strip())
        if not found or ((strict or len(links) == 2) and "_" not in link and not found.group(2)):
            return None
        file, line = split_place(found.group(2) or found.group(3) or "")
        frames.append(Frame(function=clean(found.group(1)), file=file, line=line, native=is_native(file, line)))
    return tuple(frames) if backwards else orient(frames)


def _without_label(body: str) -> str:
    found = _LABEL.match(body)
    return body[found.end() :] if found else body


def chain_label(body: str) -> ProcessHead | None:
    """The rank or title that labels an arrow chain (`rank1: a → b`), else None."""
    found = _LABEL.match(body)
    label = found.group().strip(" :") if found else ""
    return ProcessHead(None, clean(label), weak=True) if "::" in label or _RANKED.match(label) else None


def parse_thread_heading(body: str) -> ThreadHead | None:
    """A heading that is only a thread's name: `MainThread:`, `Thread-3 (run):`; else None."""
    found = _THREAD_HEADING.match(body)
    return ThreadHead(Layout.PYSPY, name=clean(found.group(1))) if found else None


def orient(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Frames of unstated direction, innermost first: reversed when only their first is a known outermost function."""
    first, last = (_ROOTS.match(f.function) is not None for f in (frames[0], frames[-1]))
    return tuple(reversed(frames)) if first and not last else tuple(frames)


def parse_heading(body: str) -> ProcessHead | None:
    """A short heading that names a process: `EngineCore (pid 435):`, `Rank 3:`, `VLLM::Worker_TP0:`; else None."""
    found = _HEADING.match(body)
    if found is None:
        return None
    pid, title, rank = found.groups()
    if pid:
        return ProcessHead(int(pid), clean(_title_before(body)), weak=True)
    return ProcessHead(None, clean(title or rank).strip(), weak=True)


def _title_before(body: str) -> str:
    name = re.split(r"[\s(\[,]*\b(?i:pid)\b", body, maxsplit=1)[0].strip(" #*`-:")
    title = full_title(name)
    return title if "::" in title or rank_tags(name) else ""


def parse_command(body: str) -> ProcessHead | None:
    """The pid in a pasted command line (`py-spy dump --pid 41`), else None."""
    found = _PID_ONLY.match(body[:40]) or _COMMAND.search(body[:400])
    return ProcessHead(int(found.group(1)), weak=True) if found else None
