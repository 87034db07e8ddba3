"""What one line of text is, whatever format it belongs to: the currency between the formats and the assembler."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from enginectl.model.observed import Frame


class Kind(IntEnum):
    """The kinds of line."""

    FRAME = 0  # a whole frame
    BARE = 1  # a lone function or a lone file:line: a frame only where frames stand
    CUT = 2  # a frame whose end is missing
    THREAD = 3
    PROCESS = 4
    PYTHON = 5
    CHAIN = 6  # a whole stack on one line, by arrows
    STACK = 7  # a whole stack on one line with its number of samples
    ROW = 8  # a row of a profile table
    LOCALS = 9  # the head of a list of variables
    PLACE = 10  # the place of the native frame on the line before
    QUIET = 11  # belongs to a dump and says nothing
    BLANK = 12
    TORN = 13  # pieces of a frame or header
    TEXT = 14
    LOGGED = 15  # text with a logger's head: it can fall between two lines of a stack
    SPLIT = 16  # the begin of another dump of the same kind


class Layout(IntEnum):
    """How the frames of a thread are written; decides the order and what may stand between them."""

    PYSPY = 0
    FAULT = 1
    GDB = 2
    PYBT = 3  # most recent call first, with source lines between
    PYSTACK = 4
    TRACEBACK = 5
    C10 = 6
    TREE = 7  # hand-made, outermost first
    PROFILE = 8
    CHAIN = 9


OUTERMOST_FIRST = frozenset({Layout.PYSTACK, Layout.TRACEBACK, Layout.TREE})
WITH_SOURCE = frozenset({Layout.PYSTACK, Layout.TRACEBACK, Layout.PYBT})
FORMAT_NAMES = {
    Layout.PYSPY: "py-spy",
    Layout.FAULT: "faulthandler",
    Layout.GDB: "gdb",
    Layout.PYBT: "gdb-python",
    Layout.PYSTACK: "pystack",
    Layout.TRACEBACK: "traceback",
    Layout.C10: "c10-backtrace",
    Layout.TREE: "bare",
    Layout.PROFILE: "profile",
    Layout.CHAIN: "arrows",
}


class ThreadHead(NamedTuple):
    """A thread header: `tid` None when it carries no id, `active` and `holds_gil` None when it does not say."""

    layout: Layout
    tid: int | None = None
    name: str | None = None
    active: bool | None = None
    holds_gil: bool | None = None
    torn: bool = False
    adopts: bool = False  # continues the open thread when there is one (a Python trace below a gdb header)
    implied: bool = False
    pthread: int | None = None  # the pthread id, where `tid` is the kernel's number of the same thread


class ProcessHead(NamedTuple):
    """A process header: pid None when it only tells a title."""

    pid: int | None
    title: str = ""
    python: str | None = None
    weak: bool = False  # a mention, worth a process only when threads follow


class Row(NamedTuple):
    """A row of a profile table: seconds of its own and with callees, and the shares printed (0..1)."""

    own_ratio: float
    total_ratio: float
    own_seconds: float
    total_seconds: float
    frame: Frame


class Stack(NamedTuple):
    """A sampled stack: innermost first, how often it was seen, and the thread and process it was labelled with."""

    frames: tuple[Frame, ...]
    weight: float
    thread: ThreadHead | None = None
    process: ProcessHead | None = None


class Stamp(NamedTuple):
    """What the envelope of a line says: the lane that separates writers, and who wrote."""

    lane: str = ""
    pid: int | None = None
    title: str = ""
    tags: str = ""
    when: str = ""


NO_STAMP = Stamp()


class Token(NamedTuple):
    """One line. Only the fields of its kind are set; `layout` tells which frames it belongs with."""

    kind: Kind
    stamp: Stamp = NO_STAMP
    layout: Layout = Layout.PYSPY
    frame: Frame | None = None
    head: ThreadHead | None = None
    process: ProcessHead | None = None
    row: Row | None = None
    stack: Stack | None = None
    text: str = ""
    indent: int = 0
    words: tuple[str, ...] = ()
    tool_error: str | None = None
    death: str | None = None
