"""faulthandler, alone or inside a fatal error, a time-out or a test report, and the C++ backtrace of c10 errors.

Also exception tracebacks, which look alike: they have a comma before `in` and run outermost first.
"""

from __future__ import annotations

import re

from enginectl.model.observed import Frame
from enginectl.read.naming import clean
from enginectl.read.tokens import Layout, ThreadHead

_THREAD = re.compile(
    r"(Current t|T)hread 0x([0-9a-fA-F]{1,16})(?: \[(.{0,200}?)\])?(?: \(garbage-collecting\))?"
    r" \(most recent call first\):"
)
_FRAME = re.compile(r'File "([^"]{0,2000})", line (\d{1,9}|\?\?\?) in (\S.*)$')
_PLAIN = re.compile(rb'  File "([\w./+-]{1,400})", line (\d{1,9}) in ([\w.]{1,200}|<\w{1,40}>)$')
_TRACE_FRAME = re.compile(r'File "([^"]{0,2000})", line (\d{1,9}|\?), in (\S.*)$')
_C10_FRAME = re.compile(r"frame #\d{1,4}: (.{0,8000}) \(0x[0-9a-fA-F]{1,16} in ([^()]{1,400})\)$")
_OFFSET = re.compile(r" \+ 0x[0-9a-fA-F]{1,16}$")
_SPLIT = re.compile(r"Fatal Python error: |Timeout \(\d{1,3}:\d\d:\d\d(?:\.\d+)?\)!|\+{5,} ?Timeout ?\+{5,}")
_QUIET = ("Extension modules:", "<no Python frame>", "Current thread's C stack", 'Binary file "', "~~~~~~~", "^^^^")
_LONE_TITLE = re.compile(r"~{5,} Stack of (.{1,100}?) \((\d{1,18})\) ~{5,}")


def parse_thread(text: str) -> ThreadHead | None:
    """`Thread 0x00007f… (most recent call first):`, with a name in 3.14; the one marked current ran when it dumped."""
    found = _THREAD.search(text[:400])
    if found:
        name = found.group(3)
        return ThreadHead(
            Layout.FAULT,
            tid=int(found.group(2), 16) & 0x7FFF_FFFF_FFFF_FFFF,
            name=clean(name) if name else None,
            active=True if found.group(1) == "Current t" else None,
            torn=found.start() > 0,
        )
    found = _LONE_TITLE.match(text)
    if found:  # the thread report of a test time-out: outermost first
        return ThreadHead(Layout.TRACEBACK, tid=int(found.group(2)), name=clean(found.group(1)))
    return None


def parse_frame(body: str) -> Frame | None:
    """`File "P", line N in F` (no comma), else None."""
    found = _FRAME.match(body)
    if not found:
        return None
    line = found.group(2)
    return Frame(
        function=clean(found.group(3)), file=clean(found.group(1)), line=int(line) or None if line.isdigit() else None
    )


def parse_plain(raw: bytes) -> Frame | None:
    """The frame of a raw line as faulthandler itself writes it, with nothing to be cleaned."""
    found = _PLAIN.match(raw)
    if found is None:
        return None
    file, line, function = found.groups()
    return Frame(function=function.decode("ascii"), file=file.decode("ascii"), line=int(line) or None)


def parse_traceback_frame(body: str) -> Frame | None:
    """`File "P", line N, in F` (comma) of tracebacks and of gdb's py-bt, else None."""
    found = _TRACE_FRAME.match(body)
    if not found:
        return None
    line = found.group(2)
    return Frame(
        function=clean(found.group(3)), file=clean(found.group(1)), line=int(line) or None if line.isdigit() else None
    )


def parse_c10_frame(body: str) -> tuple[Frame, str] | None:
    """A `frame #N: …` line as (native frame, process title or ""); the main program's name can be the title."""
    found = _C10_FRAME.match(body)
    if not found:
        return None
    symbol, library = _OFFSET.sub("", found.group(1)), found.group(2)
    title = library if "::" in library else ""
    return Frame(function=clean(symbol, 4096), file=clean(library), native=True), clean(title)


def parse_split(body: str) -> bool:
    """Whether the line begins a dump of its own: a fatal error or an expired timer."""
    return _SPLIT.match(body) is not None


def is_quiet(body: str) -> bool:
    """Lines of a dump that carry no frame."""
    return body.startswith(_QUIET)
