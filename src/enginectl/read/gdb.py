"""gdb: `thread apply all bt`, `py-bt`, and the Python frames that a debugging helper prints inside `bt`."""

from __future__ import annotations

import re

from enginectl.model.observed import Frame
from enginectl.read.naming import clean
from enginectl.read.tokens import Layout, ProcessHead, ThreadHead

_THREAD = re.compile(
    r"Thread (\d{1,9}) \((?:Thread 0x([0-9a-fA-F]{1,16}) )?\(?LWP (\d{1,18})\)?(?: \"?[^\"]{0,64}\"?)?\)+:?"
    r"|Thread (\d{1,9}) \(Thread 0x([0-9a-fA-F]{1,16}).{0,80}?\):"
)
_TID = re.compile(r"TID (\d{1,18}):$")  # eu-stack
_NAMED = re.compile(r'(?:LWP \d{1,18}\)?) "([^"]{1,64})"')
_FRAME = re.compile(r"#(\d{1,5}) +(?:0x[0-9a-fA-F]{1,16} (?:in )?)?(\S.*)$")
_AT = re.compile(r" at (\S[^:]{0,1000}):(\d{1,9})$")
_FROM = re.compile(r" from (\S.{0,1000})$")
_PLACE_ONLY = re.compile(r"(?:.{0,4000}\) )?(?:at (\S[^:]{0,1000}):(\d{1,9})|from (/\S{1,1000}))$")
_PYTHON = re.compile(r"(?:Frame 0x[0-9a-fA-F]{1,16}, )?for file (.{1,1000}?), line (\d{1,9}), in (\S{1,400}) \(")
_ATTACH = re.compile(r"[Aa]ttaching to (?:program: .{0,500}?, )?process (\d{1,10})|\(gdb\) attach (\d{1,10})")
_PAGER = re.compile(r"-{2,3}Type <(?:return|RET)>[^-]{0,120}-{2,3}")
_QUIET = (
    "[Thread debugging",
    "Using host libthread_db",
    "[New LWP",
    "[Switching to",
    "[Inferior",
    "(gdb)",
    "warning: ",
)


def parse_thread(text: str) -> ThreadHead | None:
    """`Thread 2 (Thread 0x7f… (LWP 42) "python"):` as LWP, comm and pthread id, else None."""
    listed = _TID.match(text)
    if listed is not None:
        return ThreadHead(Layout.GDB, tid=int(listed.group(1)))
    found = _THREAD.match(text)
    if found is None:
        return None
    pthread = int(found.group(2) or found.group(5) or "0", 16) & 0x7FFF_FFFF_FFFF_FFFF
    lwp = found.group(3)
    named = _NAMED.search(text)
    return ThreadHead(
        Layout.GDB,
        tid=int(lwp) if lwp else pthread,
        name=clean(named.group(1)) if named else None,
        pthread=pthread if lwp and pthread else None,
    )


def parse_process(text: str) -> ProcessHead | None:
    """The pid in gdb's attach line, else None."""
    found = _ATTACH.search(text[:600])
    return ProcessHead(int(found.group(1) or found.group(2)), weak=True) if found else None


def parse_frame(body: str) -> tuple[Frame, int] | None:
    """`#N  [0xADDR in ]FUNC (ARGS)[ at FILE:LINE| from LIB]` as (frame, N); arguments are dropped. Else None."""
    found = _FRAME.match(body)
    if not found:
        return None
    number, rest = int(found.group(1)), found.group(2)
    python = _PYTHON.search(rest[:6000])
    if python:
        file, line, function = python.groups()
        return Frame(function=clean(function), file=clean(file), line=int(line) or None), number
    file, line_number = "", None
    place = _AT.search(rest[-1100:])
    if place:
        file, line_number = place.group(1), int(place.group(2)) or None
        rest = rest[: len(rest) - len(place.group())]
    else:
        place = _FROM.search(rest[-1100:])
        if place:
            file = place.group(1)
            rest = rest[: len(rest) - len(place.group())]
    function = _without_arguments(rest)
    return Frame(function=clean(function, 4096), file=clean(file), line=line_number, native=True), number


def _without_arguments(text: str) -> str:
    """The function of `f(int) (x=1, y=(2))`: what stands before the bracket group that closes the text."""
    if text.endswith(")"):
        cut = text.rfind(" (")
        if cut > 0 and "(" not in text[cut + 2 : -1] and ")" not in text[cut + 2 : -1]:
            return text[:cut]
        depth = 0
        for index in range(len(text) - 1, -1, -1):
            char = text[index]
            if char == ")":
                depth += 1
            elif char == "(":
                depth -= 1
                if depth == 0 and index and text[index - 1] == " ":
                    return text[: index - 1]
    cut = text.find(" (")
    while cut > 0 and text[cut + 2 : cut + 11] == "anonymous":
        cut = text.find(" (", cut + 2)
    return text[:cut] if cut > 0 else text


def parse_place(body: str) -> tuple[str, int | None] | None:
    """A wrapped rest of a frame, ` at FILE:LINE` or ` from LIB`, as (file, line or None); else None."""
    found = _PLACE_ONLY.match(body[-6000:])
    if not found:
        return None
    return clean(found.group(1) or found.group(3)), int(found.group(2)) or None if found.group(2) else None


def without_pager(body: str) -> str:
    """The line without the pager's question."""
    return _PAGER.sub("", body) if "Type <" in body else body


def is_quiet(body: str) -> bool:
    """Lines of gdb that carry no frame."""
    return body.startswith(_QUIET)
