"""The open thread and process of one writer: how they begin, end, follow and complete each other."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginectl.model.observed import Frame, ThreadSample
from enginectl.read.bare import orient
from enginectl.read.draft import Draft, cut_parent_chain, merged
from enginectl.read.tokens import FORMAT_NAMES, OUTERMOST_FIRST, Layout, ProcessHead, Stack, Stamp, ThreadHead

PROFILE_STACKS = 200_000
"""Different sampled stacks kept of one thread."""


FRAME_INDENT = {Layout.PYSPY: 4, Layout.FAULT: 2}
"""Blanks by which frames stand in from their header, until the first of them tells."""


MAX_TRACEBACKS, MAX_THREADS, MAX_DRAFTS = 8, 1 << 18, 1 << 17
"""Bounds per process, and of processes per writer; what comes later is passed over."""


class Stacks:
    """Processes and threads of one writer, in order. `drafts` is whole after `finish`.

    `plain` says that the next frame of the same layout may simply be appended to `frames`.
    """

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.draft = Draft()
        self.head: ThreadHead | None = None
        self.frames: list[Frame] = []
        self.layout = Layout.PYSPY
        self.plain = False
        self.used = 0
        self._indent = 0
        self._locals = False
        self._logged = 0
        self._cut: str | None = None
        self._symbol = ""
        self._gap = False
        self._stamp = Stamp()

    def add_stack(self, stack: Stack) -> None:
        """Take a sampled stack in, under the thread and process it names."""
        if stack.process is not None and stack.process.pid != self.draft.pid:
            self.begin(stack.process, Stamp())
        self.draft.formats.add(FORMAT_NAMES[Layout.PROFILE])
        if stack.thread is not None and stack.thread.tid is not None:
            tid = stack.thread.tid
            self.draft.thread_names.setdefault(tid, stack.thread.name)
            held = self.draft.thread_stacks.setdefault(tid, [])
            if len(held) < PROFILE_STACKS:
                held.append((stack.frames, stack.weight))
        elif len(self.draft.stacks) < PROFILE_STACKS:
            self.draft.stacks[stack.frames] = self.draft.stacks.get(stack.frames, 0.0) + stack.weight

    def _open(self, head: ThreadHead, stamp: Stamp, indent: int) -> None:
        self.head, self.layout = head, head.layout
        self._indent = indent if head.implied else indent + FRAME_INDENT.get(head.layout, 0)
        self.frames = []
        self._logged, self._gap, self._locals, self._cut, self._symbol = 0, False, False, None, ""
        self.draft.when = self.draft.when or stamp.when

    def close(self) -> None:
        """End the open thread and keep it."""
        head, frames = self.head, self.frames
        self.head, self.frames, self._logged, self._cut = None, [], 0, None
        if head is None or (head.implied and not frames):
            return
        if self.layout in OUTERMOST_FIRST:
            frames.reverse()
            if head.implied and self.layout is Layout.TRACEBACK:  # no header told the direction
                frames = list(orient(frames))
        whole = len(frames)
        frames = cut_parent_chain(frames)
        self.used += whole - len(frames)
        draft, tid = self.draft, head.tid
        weak = self.layout is Layout.TRACEBACK and tid is None
        limit = MAX_TRACEBACKS if weak else MAX_THREADS
        if (weak and not (draft.weak or draft.empty)) or len(draft.threads) >= limit:
            self.used += len(frames)
            return
        if draft.weak and not weak:
            draft.threads, draft.tids, draft.frames, draft.formats = [], {}, 0, set()
        draft.weak = weak
        if tid is None and head.name == "MainThread" and draft.pid is not None and draft.pid not in draft.tids:
            tid = draft.pid
        if head.pthread is not None and head.tid is not None:
            draft.pthreads[head.pthread] = head.tid
        if tid is not None and tid in draft.tids:
            old = draft.threads[draft.tids[tid]]
            if self._completes(old, frames):
                joined = merged(old.frames or (), frames)
                draft.threads[draft.tids[tid]] = msgspec.structs.replace(old, frames=joined)
                draft.frames += len(frames)
                return
            self._next()
            self.draft.again = True
            self.draft.pid, self.draft.title, self.draft.python = draft.pid, draft.title, draft.python
            self.draft.tags = draft.tags
            draft = self.draft
        if tid is None:
            tid = -1 - len(draft.threads)
        draft.tids[tid] = len(draft.threads)
        draft.frames += len(frames)
        draft.interrupt = draft.interrupt or (weak and (head.adopts or head.implied))
        implied = head.implied and self.layout in (Layout.PYSPY, Layout.TREE)
        draft.formats.add("bare" if implied else FORMAT_NAMES[self.layout])
        draft.threads.append(
            ThreadSample(tid=tid, name=head.name, active=head.active, holds_gil=head.holds_gil, frames=tuple(frames))
        )

    def _completes(self, old: ThreadSample, frames: Sequence[Frame]) -> bool:
        """Whether Python frames follow the C frames of the same gdb thread."""
        if self.layout not in (Layout.PYBT, Layout.GDB) or "gdb" not in self.draft.formats or not frames:
            return False
        return all(f.native for f in old.frames or ()) and not any(f.native for f in frames)

    def begin(self, process: ProcessHead, stamp: Stamp) -> None:
        """Start a process, or complete the one just announced."""
        draft = self.draft
        fresh = (
            draft.empty
            and (draft.pid is None or draft.pid == process.pid)
            and not (process.pid is None and draft.title)
        )
        if not fresh:
            self._next()
            draft = self.draft
        draft.pid = process.pid if process.pid is not None else draft.pid
        draft.title = process.title or draft.title
        draft.python = process.python or draft.python
        draft.tags = stamp.tags or draft.tags
        draft.when = stamp.when or draft.when
        draft.mentioned = True

    def _next(self) -> None:
        self._keep()
        self.draft = Draft()

    def _keep(self) -> None:
        draft, stamp = self.draft, self._stamp
        if draft.pid is None and not draft.empty:
            if stamp.pid is not None:
                draft.pid, draft.title = stamp.pid, draft.title or stamp.title
            draft.tags = draft.tags or stamp.tags
        if draft.pid is None:
            named = [(t.tid, t.name) for t in draft.threads] + list(draft.thread_names.items())
            draft.pid = next((tid for tid, name in named if name == "MainThread" and 0 < tid < 1 << 22), None)
        if len(self.drafts) >= MAX_DRAFTS:
            return
        if not draft.empty or draft.python or (draft.pid is not None and "::" in draft.title):
            self.drafts.append(draft)

    def finish(self) -> None:
        """End of the text."""
        self.close()
        self._next()
