"""What is on the screen: the state of the view, its layout for a size, and putting a `Screenful` into the panels."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.app import App

from enginectl.render import words
from enginectl.top.draw import gauges, header, help, log, threads, tree
from enginectl.top.moment import Feed, Moment, Node, Sources
from enginectl.top.playhead import Playhead
from enginectl.top.rows import SORTS, Row, Table, table
from enginectl.top.screenful import Change, Screenful, screenful
from enginectl.top.widgets.lines import Lines
from enginectl.top.widgets.page import Page
from enginectl.top.widgets.panel import Panel

_START = Screenful(window=(Moment(at=0.0),))


class View(App[None]):
    """Everything that decides what is drawn. `node` is the thread chosen by hand, None for the first of the table."""

    def __init__(self, sources: Sources, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.sources = sources
        self.clock = clock
        self.feed: Feed | None = None
        self.moments: list[Moment] = []
        self.changes: list[Change] = []
        self.playhead = Playhead(live=True)
        self.arrived_at = clock()
        self.shown = _START
        self.table = Table(rows=(), hidden=0)
        self.sort = SORTS[0]
        self.helpers = False
        self.node: Node | None = None
        self.only_pid: int | None = None
        self.branch = 0
        self._gpus = 0

    @property
    def live(self) -> bool:
        """Whether an engine is watched, not a recording."""
        return self.feed is None or self.feed.live

    @property
    def chosen(self) -> Row | None:
        """The row under the cursor: the one chosen by hand while it is there, else the first."""
        rows = self.table.rows
        return next((row for row in rows if row.node == self.node), rows[0] if rows else None)

    def panel(self, name: str) -> Panel:
        """A panel of the main screen by its id."""
        return self.screen_stack[0].query_one(f"#{name}", Panel)

    def show(self) -> None:
        """Draw the moment that the playhead points at, in every panel and open page."""
        if not self.screen_stack or not self.screen_stack[0].is_mounted:
            return
        if self.moments:
            stale = self.clock() - self.arrived_at if self.playhead.following else 0.0
            at, mode = self.playhead.index, self.playhead.mode
            self.shown = screenful(self.moments, at, self.changes, mode=mode, stale_seconds=stale)
        gpus = len(self.shown.diagnosis.gpus) if self.shown.diagnosis else 0
        if gpus != self._gpus:
            self._gpus = gpus
            self.fit_layout()
            self.call_after_refresh(self.show)
        self.table = table(self.shown, sort=self.sort, helpers=self.helpers, pid=self.only_pid)
        self.show_header()
        self._show_tree()
        self._show_threads()
        for name, draw in (("gauges", gauges.gauges), ("log", log.log)):
            panel = self.panel(name)
            panel.put(draw(self.shown, max(20, panel.content_size.width)))
        for page in self.screen_stack[1:]:
            if isinstance(page, Page):
                page.again()

    def fit_layout(self) -> None:
        """Give the parts their sizes for this terminal and this number of devices."""
        width, height = self.size.width, self.size.height
        main = self.screen_stack[0]
        main.query_one("#header").styles.height = 4 if height < 30 else 5
        main.query_one("#tree").styles.width = 24 if width < 100 else 30 if width < 140 else 40
        wanted = 4 + max(1, self._gpus)
        below = main.query_one("#below")
        below.styles.height = 6 if height < 30 else min(max(8, wanted + 1), height // 3)
        below.set_class(height < 30, "tight")
        main.query_one("#left").styles.width = "1fr" if width < 120 else "3fr"
        main.query_one("#log").styles.width = "1fr" if width < 120 else "4fr"
        main.query_one("#keys", Lines).put_lines([help.key_line(width, live=self.live)])

    def show_header(self) -> None:
        """Only the top: its ages move on when nothing else does."""
        if self.playhead.following and self.moments:
            stale = self.clock() - self.arrived_at
            self.shown = screenful(self.moments, self.playhead.index, self.changes, stale_seconds=stale)
        lines = header.header(self.shown, self.size.width, lines=4 if self.size.height < 30 else 5)
        self.screen_stack[0].query_one("#header", Lines).put_lines(lines)

    def _show_tree(self) -> None:
        panel = self.panel("tree")
        lines = tree.tree(self.shown, panel.content_size.width, self.only_pid)
        self.branch = max(0, min(self.branch, len(lines) - 1))
        panel.put(lines, selected=self.branch if panel.has_focus else None)

    def _show_threads(self) -> None:
        panel = self.panel("threads")
        width, chosen = max(40, panel.content_size.width), self.chosen
        owner = next((r.process for r in self.table.rows if r.process.pid == self.only_pid), None)
        process = words.process(owner.role, owner.pid, owner.rank) if owner else ""
        panel.put(
            threads.threads(self.shown, self.table, width),
            title=threads.title(self.table, self.sort, process, self.shown.moment.pace),
            heading=threads.heading(width),
            footer=threads.footer(self.shown, self.table, width),
            selected=self.table.rows.index(chosen) if chosen else None,
            tail=threads.stack_below(chosen, width) if chosen else (),
        )
