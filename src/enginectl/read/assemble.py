"""Tokens in, processes and threads out. One `Lane` per writer; the lane knows the context that a line lacks."""

from __future__ import annotations

import msgspec

from enginectl.model.observed import Frame
from enginectl.read import bare, pyspy_text
from enginectl.read.stacks import PROFILE_STACKS, Stacks
from enginectl.read.tokens import WITH_SOURCE, Kind, Layout, ThreadHead, Token

SYMBOL_LIMIT = 4096
"""Characters kept of a native symbol that was wrapped."""
LOG_LINES_WITHIN = 20
"""So many log lines may fall between two lines of a stack before the stack counts as ended."""


class Lane(Stacks):
    """The lines of one writer, in order. Feed tokens, then `finish`."""

    def __init__(self) -> None:
        super().__init__()
        self.words: dict[str, None] = {}
        self.deaths: list[str] = []
        self.tool_errors: list[tuple[int | None, str]] = []
        self.torn = 0
        self.quiet_run = 0
        self._maybe: list[Frame] = []

    def feed(self, token: Token) -> None:
        """Take one line in."""
        kind = token.kind
        if token.stamp.pid is not None or token.stamp.title:
            self._stamp = token.stamp
        self.plain = False
        self.quiet_run = self.quiet_run + 1 if kind >= Kind.BLANK else 0
        if self._locals and token.indent > self._indent:
            self.used += 1
            return
        self._locals = self._locals and kind is Kind.BLANK
        if self._in_source(token):
            self.used += 1
            return
        if self._cut is not None and kind not in (Kind.THREAD, Kind.PROCESS, Kind.BLANK) and self._join_cut(token):
            return
        _HANDLERS[kind](self, token)

    def _in_source(self, token: Token) -> bool:
        """Whether the line is source text, variables or a remark between the frames of such a format."""
        if self.head is None or self.layout not in WITH_SOURCE or not self.frames:
            return False
        if token.indent <= self._indent or token.kind in (Kind.THREAD, Kind.PROCESS, Kind.SPLIT, Kind.BLANK):
            return False
        return token.kind is not Kind.FRAME or not self._belongs(token)

    def _belongs(self, token: Token) -> bool:
        if token.layout is self.layout:
            return True
        if self.layout is Layout.TREE:
            return token.layout is Layout.PYSPY and token.indent > self._indent
        return token.layout is Layout.TRACEBACK and self.layout is Layout.PYBT

    def _join_cut(self, token: Token) -> bool:
        """Glue a wrapped line to the frame it continues."""
        text, self._cut = self._cut, None
        if token.kind is Kind.FRAME or not token.text or text is None or not self.frames:
            return False
        frame = pyspy_text.parse_frame(text + token.text)
        if frame is None:
            return False
        self.frames[-1] = frame
        self.torn -= 1
        self.used += 1
        return True

    def _on_frame(self, token: Token) -> None:
        frame = token.frame
        if frame is None:
            return
        if self.head is not None and self._logged:
            if self._logged > LOG_LINES_WITHIN or not self._belongs(token) or self.head.implied:
                self.close()
            else:
                self.torn += self._logged
                self._logged = 0
        if self.head is not None and not self._belongs(token) and not self._adapt(token):
            self.close()
        if (
            self.head is not None
            and token.layout is Layout.GDB
            and token.text == "0"
            and self.frames
            and self.head.implied
        ):
            self.close()
        if self.head is None:
            if token.text == "?":  # a frame by its brackets only
                return self._on_text(token)
            self._open(ThreadHead(token.layout, implied=True), token.stamp, token.indent)
            self.frames += self._maybe
        self._maybe = []
        if token.layout is Layout.C10 and token.text and not self.draft.title:
            self.draft.title = token.text
        if self._symbol and frame.native and frame.function.count(">") > frame.function.count("<"):
            frame = msgspec.structs.replace(frame, function=(self._symbol + frame.function)[:SYMBOL_LIMIT])
            self.torn -= 1
        self._symbol = ""
        self._gap = False
        if not self.frames:
            self._indent = token.indent
        self.frames.append(frame)
        self.plain = self._belongs(token) and token.text == "" and token.layout is self.layout

    def _adapt(self, token: Token) -> bool:
        """Let a header without frames yet take the frames that follow; let gdb threads hold both kinds."""
        if not self.frames and self.head is not None and self.layout is not Layout.TRACEBACK:
            self.layout = token.layout
            return True
        return False

    def _on_bare(self, token: Token) -> None:
        frame = token.frame
        if frame is None:
            return
        if token.layout is Layout.TREE:
            if self.head is not None and self.layout is not Layout.TREE:
                return self._on_text(token)
            self.close()
            self._open(ThreadHead(Layout.TREE, implied=True), token.stamp, token.indent)
            self.frames.append(frame)
            return
        inside = self.head is not None and not self._logged and self.layout in (Layout.PYSPY, Layout.TREE)
        fits = not self.frames or token.indent == self._indent or self.layout is Layout.TREE
        if inside and fits and not self._gap:
            if not self.frames:
                self._indent = token.indent
            self.frames.append(frame)
        elif self.head is None and (not frame.function or (self.draft.mentioned and self.draft.empty)):
            self._open(ThreadHead(Layout.PYSPY, implied=True), token.stamp, token.indent)
            self.frames += [*self._maybe, frame]
            self._maybe = []
        elif self.head is None:
            self._maybe = [*self._maybe[-7:], frame]
        else:
            self._on_text(token)

    def _on_cut(self, token: Token) -> None:
        if self.head is None or self.layout is not Layout.PYSPY or token.frame is None:
            return self._on_text(token)
        if not self.frames:
            self._indent = token.indent
        self.frames.append(token.frame)
        self._cut = token.text
        self.torn += 1

    def _on_thread(self, token: Token) -> None:
        head = token.head
        if head is None:
            return
        if head.adopts and self.head is not None and self.layout in (Layout.GDB, Layout.PYBT):
            if not self.frames:
                self.layout = Layout.PYBT
                return
            head = head._replace(tid=self.head.tid, name=self.head.name)
        self.close()
        self.used += 1
        self.torn += head.torn
        self._open(head, token.stamp, token.indent)
        self.plain = head.layout is Layout.PYSPY or head.layout is Layout.FAULT

    def _on_process(self, token: Token) -> None:
        self.close()
        self.used += 1
        if token.tool_error is not None and token.process is not None:
            self.tool_errors.append((token.process.pid, token.tool_error))
        if token.process is not None:
            self.begin(token.process, token.stamp)

    def _on_python(self, token: Token) -> None:
        self.close()
        self.used += 1
        if not self.draft.empty:
            self._next()
        self.draft.python = token.text
        self.draft.mentioned = True

    def _on_stack(self, token: Token) -> None:
        self.close()
        self.used += 1
        if token.stack is not None:
            self.add_stack(token.stack)

    def _on_chain(self, token: Token) -> None:
        self.close()
        self.used += 1
        if token.stack is not None:
            if token.stack.process is not None:
                self.begin(token.stack.process, token.stamp)
            self._open(ThreadHead(Layout.CHAIN, implied=True), token.stamp, token.indent)
            self.frames = list(token.stack.frames)
            self.close()

    def _on_row(self, token: Token) -> None:
        self.close()
        self.used += 1
        if token.row is not None and len(self.draft.rows) < PROFILE_STACKS:
            self.draft.rows.append(token.row)
            self.draft.formats.add("py-spy-top")

    def _on_locals(self, token: Token) -> None:
        self._locals = self.head is not None
        self.used += self._locals

    def _on_place(self, token: Token) -> None:
        if self.layout is Layout.GDB and self.frames and self.head is not None and token.frame is not None:
            place = token.frame
            self.frames[-1] = msgspec.structs.replace(self.frames[-1], file=place.file, line=place.line)
            self.used += 1
        else:
            self._on_text(token)

    def _on_quiet(self, token: Token) -> None:
        self.used += self.head is not None
        if token.text.startswith(("```", "~~~")):
            self.close()

    def _on_blank(self, token: Token) -> None:
        if self.head is not None and self.head.implied and self.frames:
            self.close()
        self._gap = True
        self._maybe = []
        self._symbol = ""

    def _on_torn(self, token: Token) -> None:
        if (self.head is None and not self.draft.empty) or self.head is not None:
            self.torn += 1
        elif token.text[:1] in "F" or 'File "' in token.text:
            self.torn += 1  # the begin of the text is itself in pieces
            self._open(ThreadHead(Layout.FAULT, implied=True, torn=True), token.stamp, token.indent)

    def _on_text(self, token: Token) -> None:
        self._maybe = []
        if self.head is not None and self.layout is Layout.PYSPY and "::" in token.text and self.frames:
            self._symbol = (self._symbol + token.text)[:SYMBOL_LIMIT]
            self.torn += 1
            return
        if self.head is not None and self.layout is Layout.GDB and self.frames and token.indent >= 1:
            return  # a wrapped argument list
        if self.head is not None and self.layout is Layout.TREE and token.indent > self._indent:
            frame = bare.parse_function(token.text)
            self.frames += [frame] if frame is not None else []
            return
        if self.head is not None and self.layout is Layout.TRACEBACK and token.text:
            self.draft_exception(token.text)
        self.close()

    def draft_exception(self, text: str) -> None:
        """The line that ends a traceback: an interrupt by hand tells where the process stood."""
        if self.head is not None and text.startswith(("KeyboardInterrupt", "SystemExit")):
            self.head = self.head._replace(active=None, implied=False, adopts=True)

    def _on_logged(self, token: Token) -> None:
        self.note(token)
        if self.head is None:
            return
        if self.layout is Layout.TRACEBACK or (not self.frames and self.head.implied):
            if self.layout is Layout.TRACEBACK:
                self.draft_exception(token.text)
            self.close()
        else:
            self._logged += 1
            if self._logged > LOG_LINES_WITHIN:
                self.close()

    def note(self, token: Token) -> None:
        """Keep the class words of a log line."""
        self.words.update(dict.fromkeys(token.words))
        if token.death is not None:
            self.deaths.append(token.death)
        if token.tool_error is not None and token.kind is not Kind.PROCESS:
            self.tool_errors.append((None, token.tool_error))

    def _on_split(self, token: Token) -> None:
        self.note(token)
        self.close()
        self.used += 1
        if self.draft.threads and "faulthandler" in self.draft.formats:
            self._next()


_HANDLERS = {
    Kind.FRAME: Lane._on_frame,
    Kind.BARE: Lane._on_bare,
    Kind.CUT: Lane._on_cut,
    Kind.THREAD: Lane._on_thread,
    Kind.PROCESS: Lane._on_process,
    Kind.PYTHON: Lane._on_python,
    Kind.CHAIN: Lane._on_chain,
    Kind.STACK: Lane._on_stack,
    Kind.ROW: Lane._on_row,
    Kind.LOCALS: Lane._on_locals,
    Kind.PLACE: Lane._on_place,
    Kind.QUIET: Lane._on_quiet,
    Kind.BLANK: Lane._on_blank,
    Kind.TORN: Lane._on_torn,
    Kind.TEXT: Lane._on_text,
    Kind.LOGGED: Lane._on_logged,
    Kind.SPLIT: Lane._on_split,
}
