"""The application: moments arrive from a worker thread, one place of them is shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message

from enginectl.top.actions import Actions
from enginectl.top.draw.header import STALE_SECONDS
from enginectl.top.keys import BINDINGS
from enginectl.top.moment import Choice, Moment, Sources, Trouble
from enginectl.top.playhead import Playhead
from enginectl.top.screenful import change_of
from enginectl.top.widgets.lines import Lines
from enginectl.top.widgets.panel import Panel
from enginectl.top.widgets.picker import Picker

KEPT_MOMENTS = 600
"""Moments that a live view keeps to look back at."""
TICK_SECONDS = 0.5
RESTART_SECONDS = 5.0


class Top(Actions):
    """The live view of one engine. It only looks: no key changes the target."""

    CSS_PATH = "top.tcss"
    TITLE = "enginectl top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = list(BINDINGS)

    class Arrived(Message):
        """The feed has a new moment."""

        def __init__(self, moment: Moment) -> None:
            super().__init__()
            self.moment = moment

    class Ended(Message):
        """The feed has no more moments."""

    def __init__(
        self, sources: Sources, *, pid: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(sources, clock)
        self.complete = False
        self._pid = pid
        self._stop = threading.Event()

    def compose(self) -> ComposeResult:
        """Header, processes and threads, gauges and log, the keys."""
        yield Lines(id="header")
        with Horizontal(id="middle"):
            yield Panel("PROCESSES", focusable=True, id="tree")
            yield Panel("THREADS", focusable=True, id="threads")
        with Horizontal(id="below"):
            with Vertical(id="left"):
                yield Panel("ENGINE AND DEVICES", focusable=True, id="gauges")
            yield Panel("VERDICTS", focusable=True, id="log")
        yield Lines(id="keys")

    def on_mount(self) -> None:
        """Watch the engine given, or ask which one."""
        self.query_one("#threads").focus()
        self.set_interval(TICK_SECONDS, self._tick)
        if self._pid is not None:
            self.watch_engine(self._pid)
            return
        choices: tuple[Choice, ...] = self.sources.choices()
        if len(choices) == 1:
            self.watch_engine(choices[0].pid)
        else:
            self.push_screen(Picker(choices), self.watch_engine)

    def watch_engine(self, pid: int | None) -> None:
        """Attach the feed and run it in a thread of its own; no pid ends the view."""
        if pid is None:
            self.exit()
            return
        self.feed = self.sources.attach(pid)
        self.playhead = Playhead(live=self.feed.live)
        self.run_worker(self._run_feed, thread=True, exit_on_error=False)
        self.show()

    def _publish(self, moment: Moment) -> None:
        self.post_message(self.Arrived(moment))

    def _run_feed(self) -> None:
        """In the worker: run the feed; when it breaks, say so in the banner and start it again."""
        assert self.feed is not None
        while not self._stop.is_set():
            try:
                self.feed.run(self._publish, self._stop)
                break
            except Exception as error:
                text = f"internal error: {type(error).__name__}: {error}"
                last = self.moments[-1] if self.moments else Moment(at=0.0)
                self._publish(msgspec.structs.replace(last, trouble=Trouble(text=text), classes=None))
                self._stop.wait(RESTART_SECONDS)
        self.post_message(self.Ended())

    def on_top_arrived(self, message: Arrived) -> None:
        """Keep the moment, note a changed verdict, and show it unless the view is frozen."""
        self.arrived_at = self.clock()
        self.moments.append(message.moment)
        change = change_of(message.moment, self.changes[-1] if self.changes else None)
        if change is not None:
            self.changes.append(change)
        if self.playhead.live and len(self.moments) > KEPT_MOMENTS:
            del self.moments[0]
            self.playhead.dropped(1)
        self.playhead.arrived(len(self.moments))
        if self.playhead.following or len(self.moments) == 1:
            self.show()

    def on_top_ended(self) -> None:
        """The recording was read to its end."""
        self.complete = True

    def _tick(self) -> None:
        """Play a replay on; in a live view, tell when the newest look is getting old."""
        if self.playhead.play(self.moments, TICK_SECONDS, complete=self.complete):
            self.show()
        elif self.playhead.live and self.playhead.following and self.clock() - self.arrived_at > STALE_SECONDS:
            self.show_header()

    def on_resize(self) -> None:
        """Lines are made for a width, so they are made again."""
        self.fit_layout()
        self.call_after_refresh(self.show)

    def on_unmount(self) -> None:
        """Let the worker end."""
        self._stop.set()
