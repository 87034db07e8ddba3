"""pystack: outermost frame first, `(Python)` and `(C)` frames, source lines between them."""

from __future__ import annotations

import re

from enginectl.model.observed import Frame
from enginectl.read.naming import clean
from enginectl.read.tokens import Layout, ThreadHead

_THREAD = re.compile(r"Traceback for thread (\d{1,18})(?: \((.*?)\))? \[([^\]]{0,200})\] \(most recent call last\):")
_PYTHON_FRAME = re.compile(r'\(Python\) File "([^"]{0,2000})", line (\d{1,9}), in (\S.*)$')
_C_FRAME = re.compile(r'\((?:C|Rust|C\+\+)\) File "([^"]{0,2000})", line (\d{1,9}), in (\S.*)$')
_QUIET = ("The frame stack for thread ", "* - Unable to merge native stack", "Interpreter-")


def parse_thread(text: str) -> ThreadHead | None:
    """`Traceback for thread 41 (python) [Has the GIL] (most recent call last):`, else None."""
    found = _THREAD.match(text)
    if found is None:
        return None
    tid, name, status = found.groups()
    return ThreadHead(
        Layout.PYSTACK, tid=int(tid), name=clean(name) if name else None, holds_gil="Has the GIL" in status
    )


def parse_frame(body: str) -> Frame | None:
    """A `(Python) File …` or `(C) File …` line without indentation, else None."""
    found = _PYTHON_FRAME.match(body)
    if found:
        return Frame(function=clean(found.group(3)), file=clean(found.group(1)), line=int(found.group(2)) or None)
    found = _C_FRAME.match(body)
    if not found:
        return None
    file, line, symbol = found.groups()
    cut = symbol.rfind(" (")
    library = ""
    if cut > 0 and symbol.endswith(")"):
        symbol, library = symbol[:cut], symbol[cut + 2 : -1]
    known = file != "???"
    return Frame(
        function=clean(symbol, 4096),
        file=clean(file if known else library),
        line=(int(line) or None) if known else None,
        native=True,
    )


def is_quiet(body: str) -> bool:
    """Lines of pystack that carry no frame."""
    return body.startswith(_QUIET)
