"""One raw line in, one `Token` out, whatever format it is in. Knows no context: the assembler does."""

from __future__ import annotations

import re

from enginectl.model.observed import Frame
from enginectl.read import bare, collapsed, envelope, faulthandler, gdb, pyspy_text, pystack, remarks, top_table
from enginectl.read.tokens import NO_STAMP, Kind, Layout, ProcessHead, Stack, Stamp, ThreadHead, Token

_FRAGMENT = re.compile(
    r'File "|\.pyx?[:"]\d?|\.pyx?", |", line |\bline \d{1,6} in |Thread 0x|\(most recent call|\.so\)'
    r"|[\w>] \([\w/.]{1,200}\.py:\d"
)
_PYBT = "Traceback (most recent call first):"
_TRACEBACK = "Traceback (most recent call last):"
_QUIET_LINES = frozenset(
    {"...", "…", "[...]", "(...)", "```", "~~~", "```text", "```python", "```console", "```shell", "<pre>"}
)
_PYBT_QUIET = (
    "Waiting for the GIL",
    "Waiting for a lock",
    "Garbage-collecting",
    "<built-in",
    "(failed to get",
    "(unable to read",
)
_BLANK = Token(Kind.BLANK)
TEXT_LIMIT = 4096
"""Characters of an unknown line that are looked at."""
_ARROWS = re.compile(r"→|->|=>|⟶|➜|←|<-| [<>] ")
_PID = re.compile(r"PID (\d{1,10})")


def lex(raw: bytes) -> Token:
    """The token of one raw line. Errors: none; a line nobody knows is TEXT."""
    if not raw:
        return _BLANK
    if raw.startswith(b"Thread ") and b"&" not in raw and b"\\" not in raw and b"<" not in raw:
        plain = raw.decode("utf-8", "replace")
        head = pyspy_text.parse_thread(plain) if plain.isprintable() else None
        if head is not None:
            return Token(Kind.THREAD, NO_STAMP, Layout.PYSPY, head=head)
    text, stamp, logged = envelope.strip(raw)
    body = text.lstrip()
    if not body:
        return Token(Kind.BLANK, stamp)
    indent = len(text) - len(body)
    token = _known(body, stamp, indent, logged)
    return token if token is not None else _unknown(body, stamp, indent, logged)


def _thread(head: ThreadHead, stamp: Stamp, indent: int) -> Token:
    return Token(Kind.THREAD, stamp, head.layout, head=head, indent=indent)


def _process(head: ProcessHead, stamp: Stamp, indent: int) -> Token:
    return Token(Kind.PROCESS, stamp, process=head, indent=indent)


def _known(body: str, stamp: Stamp, indent: int, logged: bool) -> Token | None:
    first = body[0]
    if first in "TCPALS~+" and not body.startswith("-->"):
        token = _headed(body, stamp, indent)
        if token is not None:
            return token
    if first == "F" and body.startswith('File "'):
        frame = faulthandler.parse_frame(body)
        if frame is not None:
            return Token(Kind.FRAME, stamp, Layout.FAULT, frame, indent=indent)
        frame = faulthandler.parse_traceback_frame(body)
        if frame is not None:
            return Token(Kind.FRAME, stamp, Layout.TRACEBACK, frame, indent=indent)
        return Token(Kind.TORN, stamp, text=body[:TEXT_LIMIT], indent=indent)
    if first == "#" and body[1:2].isdigit():
        found = gdb.parse_frame(gdb.without_pager(body))
        if found is not None:
            return Token(Kind.FRAME, stamp, Layout.GDB, found[0], indent=indent, text="0" if found[1] == 0 else "")
    if first == "(" and body.startswith(("(Python)", "(C", "(Rust)")):
        frame = pystack.parse_frame(body)
        if frame is not None:
            return Token(Kind.FRAME, stamp, Layout.PYSTACK, frame, indent=indent)
    if body[-1] == ")":
        if first == "f" and body.startswith("frame #"):
            c10 = faulthandler.parse_c10_frame(body)
            if c10 is not None:
                return Token(Kind.FRAME, stamp, Layout.C10, c10[0], indent=indent, text=c10[1])
        frame = None if first.isdigit() else pyspy_text.parse_frame(body)
        if first.isdigit() and body.startswith("0x"):
            frame = pyspy_text.parse_frame(body)
        if frame is not None and not (logged and not pyspy_text.is_sure(frame)):
            return Token(
                Kind.FRAME, stamp, Layout.PYSPY, frame, indent=indent, text="" if pyspy_text.is_sure(frame) else "?"
            )
    return None


def _headed(body: str, stamp: Stamp, indent: int) -> Token | None:
    thread = None
    if body.startswith(("Thread", "Current thread", "~", "TID ")):
        thread = pyspy_text.parse_thread(body) or faulthandler.parse_thread(body) or gdb.parse_thread(body)
    elif body.startswith("Traceback "):
        if body.startswith(_PYBT):
            thread = ThreadHead(Layout.PYBT, adopts=True)
        elif body.startswith(_TRACEBACK):
            thread = ThreadHead(Layout.TRACEBACK)
        else:
            thread = pystack.parse_thread(body)
    elif body.startswith("Stack (most recent call last):"):
        thread = ThreadHead(Layout.TRACEBACK)
    if thread is not None:
        return _thread(thread, stamp, indent)
    process = None
    if body.startswith(("Process ", "Py", "Stack dump")):
        python = pyspy_text.parse_python(body)
        if python is not None:
            return Token(Kind.PYTHON, stamp, text=python, indent=indent)
        process = pyspy_text.parse_process(body)
    elif body.startswith(("Attaching", "Collecting")):
        process = gdb.parse_process(body) or top_table.parse_process(body)
    if process is not None:
        return _process(process, stamp, indent)
    if body.startswith(("Timeout (", "+++")) and faulthandler.parse_split(body):
        return Token(Kind.SPLIT, stamp, Layout.FAULT, indent=indent)
    if body in pyspy_text.LOCALS:
        return Token(Kind.LOCALS, stamp, indent=indent)
    return None


def _is_quiet(body: str) -> bool:
    if body in _QUIET_LINES or body.startswith(("```", "~~~~", "^^^", "~~^", "[Previous line repeated")):
        return True
    return faulthandler.is_quiet(body) or gdb.is_quiet(body) or pystack.is_quiet(body) or body.startswith(_PYBT_QUIET)


def _unknown(body: str, stamp: Stamp, indent: int, logged: bool) -> Token:
    text = body[:TEXT_LIMIT]
    token = None if len(body) > TEXT_LIMIT and ";" not in body else _sampled(body, stamp, indent, logged)
    if token is not None:
        return token
    token = _remarked(body, text, stamp, indent)
    if token is not None:
        return token
    if len(body) <= TEXT_LIMIT and not logged:
        token = _hand_made(body, stamp, indent)
        if token is not None:
            return token
    if _is_quiet(body):
        return Token(Kind.QUIET, stamp, text=text, indent=indent)
    if not logged and _FRAGMENT.search(text):
        return Token(Kind.TORN, stamp, text=text, indent=indent)
    return Token(Kind.LOGGED if logged else Kind.TEXT, stamp, text=text, indent=indent)


def _remarked(body: str, text: str, stamp: Stamp, indent: int) -> Token | None:
    """A line that a diagnosis can use by its class only."""
    words, error = remarks.words_of(text), remarks.tool_error_of(text)
    if words:
        death = remarks.death_of(text)
        kind = Kind.SPLIT if body.startswith("Fatal Python error:") else Kind.LOGGED
        return Token(kind, stamp, Layout.FAULT, indent=indent, words=words, death=death, tool_error=error)
    if error is not None:
        pid = _PID.search(text[:200])
        head = ProcessHead(int(pid.group(1))) if pid else None
        return Token(Kind.PROCESS if head else Kind.LOGGED, stamp, process=head, tool_error=error, indent=indent)
    return None


def _sampled(body: str, stamp: Stamp, indent: int, logged: bool) -> Token | None:
    """Lines of profiles, and whole stacks on one line."""
    if ";" in body:
        stack = collapsed.parse_line(body)
        if stack is not None:
            return Token(Kind.STACK, stamp, Layout.PROFILE, stack=stack, indent=indent)
    if "%" in body:
        if top_table.is_head(body):
            return Token(Kind.QUIET, stamp, Layout.PROFILE, indent=indent)
        row = top_table.parse_row(body)
        if row is not None:
            return Token(Kind.ROW, stamp, Layout.PROFILE, row=row, indent=indent)
    if not logged and _ARROWS.search(body):
        chain = bare.parse_chain(body)
        if chain is not None:
            stack = Stack(chain, 1.0, process=bare.chain_label(body))
            return Token(Kind.CHAIN, stamp, Layout.CHAIN, stack=stack, indent=indent)
    return None


def _hand_made(body: str, stamp: Stamp, indent: int) -> Token | None:
    if body.endswith(":"):
        thread = bare.parse_thread_heading(body)
        if thread is not None:
            return _thread(thread, stamp, indent)
    if body.endswith(":") or "-p" in body or "remote" in body or body[:3] in ("PID", "pid", "Pid", "pro"):
        head = bare.parse_heading(body) or bare.parse_command(body) or gdb.parse_process(body)
        if head is not None:
            return Token(Kind.PROCESS, stamp, process=head, indent=indent)
    if body[0].isdigit():
        frame = bare.parse_counted(body)
        if frame is not None:
            return Token(Kind.BARE, stamp, Layout.TREE, frame, text=body, indent=indent)
    if body[-1] == ")" or "<" in body or "#" in body:
        frame = bare.parse_remarked(body)
        if frame is not None:
            return Token(Kind.FRAME, stamp, Layout.PYSPY, frame, indent=indent)
    frame = bare.parse_function(body)
    if frame is not None:
        sure = frame.function and frame.line is not None
        return Token(
            Kind.FRAME if sure else Kind.BARE, stamp, Layout.PYSPY, frame, text="" if sure else body, indent=indent
        )
    if " at " in body or " from " in body or body.startswith(("at ", "from ")):
        place = gdb.parse_place(body)
        if place is not None:
            rest = Frame(function="", file=place[0], line=place[1], native=True)
            return Token(Kind.PLACE, stamp, Layout.GDB, rest, indent=indent)
    if " (" in body and body[-1] != ")":
        frame = pyspy_text.parse_cut(body)
        if frame is not None:
            return Token(Kind.CUT, stamp, Layout.PYSPY, frame, text=body, indent=indent)
    return None
