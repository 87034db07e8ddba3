"""`py-spy dump` as text, all variants: native frames, locals, no thread names, hex ids, the old tabbed form."""

from __future__ import annotations

import functools
import re

from enginectl.model.observed import Frame
from enginectl.read.naming import clean, split_title
from enginectl.read.tokens import Layout, ProcessHead, ThreadHead

_PROCESS = re.compile(r"Process (\d{1,10})(?::|$)\s*(.*)$")
_ANNOUNCED = re.compile(r"Py-?[Ss]py dump for (?:PID|pid) (\d{1,10})\b")
_STACK_DUMP = re.compile(
    r"Stack dump for \S{1,64}\s+(\d{1,10})\s+(?:\S{1,20}\s+){1,8}?(\S*(?:ray::|python|/)\S*.{0,500})$"
)
_PYTHON = re.compile(r"Python v?(\d{1,2}\.\d{1,3}(?:\.\d{1,3})?\w{0,20})(?: \(.*|$)")
_THREAD = re.compile(
    r"Thread (?:(0[xX][0-9a-fA-F]{1,16}|\d{1,18}|[A-Z?<][\w<>?]{0,12}) )?\((idle|active|active\+gil|gil)\)"
    r'(?::|(?=\s|$))\s*(?:"(.*)"|"(.*)|)'
)
_FILE_LINE = re.compile(r":(\d{1,9})(?::\d{1,6})?$")
_PYTHON_FILE = re.compile(r"\.(?:pyx?|pxd|pyi|ipynb)$|^<|^\S*\.\.\.$")
_NATIVE_FILE = re.compile(r"\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|rs|S|go|inl?)$")
_LIBRARY = re.compile(
    r"\.so\b|^lib[\w.+-]+$|^python\d|^\[?(?:vdso|linux-vdso)|^ld-|^cuda\b|\.dylib$|\(deleted\)$|^uvloop/|\.cpython-"
)
_OMITTED = re.compile(r"^.*(?:…|\.\.\.)/")
_PLAIN = re.compile(rb" {4}([\w.:~+-]{1,300}|<\w{1,40}>) \(([\w./+-]{1,300}(?::\d{1,9})?|<string>:\d{1,9})\)$")
LOCALS = frozenset({"Arguments:", "Locals:", "Arguments::", "Locals::"})


def parse_process(text: str) -> ProcessHead | None:
    """`Process PID: TITLE`, the announcement of a watchdog, or an old `Stack dump for` line; else None."""
    if text.startswith("Process "):
        found = _PROCESS.match(text)
        if found is None:
            return None
        title, python = split_title(found.group(2))
        return ProcessHead(int(found.group(1)), title, python, weak=not title)
    found = _ANNOUNCED.search(text[:400])
    if found:
        return ProcessHead(int(found.group(1)), weak=True)
    if text.startswith("Stack dump for "):
        found = _STACK_DUMP.match(text)
        return ProcessHead(int(found.group(1)), split_title(found.group(2))[0]) if found else None
    return None


def parse_python(text: str) -> str | None:
    """The version in `Python v3.12.1 (/usr/bin/python3.12)`, else None."""
    found = _PYTHON.match(text)
    return found.group(1) if found else None


def parse_thread(text: str) -> ThreadHead | None:
    """`Thread 41 (idle): "MainThread"`; the id may be hex, a placeholder or missing, a remark may follow."""
    found = _THREAD.match(text)
    if found is None:
        return None
    ident, state, name, cut_name = found.groups()
    name = name if name is not None else cut_name
    tid = None
    if ident and not ident[0].isdigit():
        name = name or (ident if len(ident) > 2 else None)
    elif ident:
        tid = int(ident, 16) if ident[:2] in ("0x", "0X") else int(ident)
    return ThreadHead(
        Layout.PYSPY,
        tid=tid,
        name=clean(name) if name else None,
        active=state != "idle",
        holds_gil=state.endswith("gil"),
        torn=cut_name is not None,
    )


@functools.lru_cache(maxsize=1 << 14)
def place_of(place: str) -> tuple[str, int | None, bool]:
    """`pkg/a.py:12` as (file, line, native). Remembered, because dumps repeat their places."""
    file, line = split_place(place)
    return file, line, is_native(file, line)


@functools.lru_cache(maxsize=1 << 14)
def _place_of_raw(place: bytes) -> tuple[str, int | None, bool]:
    return place_of(place.decode())


def split_place(place: str) -> tuple[str, int | None]:
    """`pkg/a.py:12` as (file, line); an omission (`.../b.py`) keeps what follows it."""
    found = _FILE_LINE.search(place)
    line = None
    if found:
        place, line = place[: found.start()], int(found.group(1)) or None
    if "…" in place or "..." in place:
        place = _OMITTED.sub("", place)
        place = "" if place in ("…", "...") else place
    return clean(place), line


def is_native(file: str, line: int | None) -> bool:
    """Whether a frame with this file is machine code rather than Python."""
    if _PYTHON_FILE.search(file):
        return False
    return bool(_NATIVE_FILE.search(file) or (_LIBRARY.search(file) and line is None))


def parse_frame(body: str) -> Frame | None:
    """`NAME (FILE:LINE)`, `SYMBOL (LIB)`, or `NAME  FILE:LINE`, without indentation; None when it is no frame.

    The place is the last bracket group: C++ symbols hold brackets and blanks themselves.
    """
    if not body.endswith(")"):
        return None
    cut = body.rfind(" (")
    if cut <= 0:
        return None
    function, place = body[:cut].rstrip(), body[cut + 2 : -1]
    if "(" in place or not place:
        return None
    file, line, native = place_of(place)
    if " " in file and line is None and not native:
        return None
    if " " in function and not (native or "::" in function):
        return None
    return Frame(function=clean(function, 4096), file=file, line=line, native=native)


def parse_plain(raw: bytes) -> Frame | None:
    """The frame of a raw line in py-spy's own plainest form: four blanks, name, place, nothing to be cleaned."""
    found = _PLAIN.match(raw)
    if found is None:
        return None
    function, place = found.groups()
    file, line, native = _place_of_raw(place)
    return Frame(function=function.decode(), file=file, line=line, native=native)


def parse_cut(body: str) -> Frame | None:
    """A frame whose bracket never closes (`run (pkg/prefill.`), as far as it goes; else None."""
    function, bracket, place = body.rpartition(" (")
    function = function.rstrip()
    if not bracket or not function or ")" in place or " " in place or (" " in function and "::" not in function):
        return None
    file, line = split_place(place)
    return Frame(function=clean(function, 4096), file=file, line=line, native=is_native(file, line))


def is_sure(frame: Frame) -> bool:
    """Whether the frame may stand without any thread header: it has a source line, or a library by its looks."""
    if frame.native:
        return True
    return bool(frame.line is not None or _PYTHON_FILE.search(frame.file)) and bool(frame.file)
