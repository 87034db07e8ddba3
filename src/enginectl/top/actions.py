"""What the keys do. Every one of them looks or changes the view; none touches the target."""

from __future__ import annotations

from functools import partial

from rich.text import Text

from enginectl.top.draw import chain, help, pages
from enginectl.top.draw.style import DIM
from enginectl.top.draw.tree import branches
from enginectl.top.moment import Feed
from enginectl.top.rows import SORTS, Row
from enginectl.top.view import View
from enginectl.top.widgets.page import Page
from enginectl.top.widgets.panel import Panel

PANELS = ("threads", "tree", "gauges", "log")


class Actions(View):
    """The actions of the main screen, one a key."""

    def action_move(self, lines: int) -> None:
        """Move the cursor of the panel that has the focus."""
        focused = self.focused
        if isinstance(focused, Panel) and focused.id in ("gauges", "log"):
            focused.shift(lines)
        elif self.panel("tree").has_focus:
            self.branch += lines
        elif (chosen := self.chosen) is not None:
            rows = self.table.rows
            at = max(0, min(len(rows) - 1, rows.index(chosen) + lines))
            self.node = rows[at].node
        self.show()

    def action_other_panel(self, step: int) -> None:
        """Go to the next panel: threads, processes, devices, verdicts."""
        if len(self.screen_stack) > 1:
            return
        focused = self.focused.id if self.focused is not None and self.focused.id in PANELS else PANELS[0]
        self.panel(PANELS[(PANELS.index(focused) + step) % len(PANELS)]).focus()
        self.call_after_refresh(self.show)

    def action_open(self) -> None:
        """On a process: show its threads only. On a thread: open its stack."""
        if self.panel("tree").has_focus:
            found = branches(self.shown)
            self.only_pid = found[self.branch - 1].process.pid if 0 < self.branch <= len(found) else None
            self.show()
            return
        row = self.chosen
        if row is not None:
            title = f"STACK of {row.thread.role}, {row.thread.name}"
            node, page = row.node, self.sources.page
            self.push_screen(Page(title, lambda width: pages.stack(self.shown, node, width, page)))

    def action_chain(self) -> None:
        """Open the blame chain."""
        self.push_screen(Page("BLAME CHAIN, EVIDENCE, ADVICE", lambda width: chain.chain(self.shown, width)))

    def action_help(self) -> None:
        """Open the help."""
        self.push_screen(Page("HELP", lambda width: help.help_lines(self.shown, width)))

    def action_native(self) -> None:
        """Take one native sample of the chosen thread, in a worker, and show it."""
        row, feed = self.chosen, self.feed
        if row is None or feed is None:
            return
        title = f"NATIVE SAMPLE of {row.thread.role}, {row.thread.name}"
        page = Page(title, lambda _: [Text("taking one native sample …", DIM)])
        self.push_screen(page)
        self.run_worker(partial(self._native, feed, row, page), thread=True, group="native", exclusive=True)

    def _native(self, feed: Feed, row: Row, page: Page) -> None:
        sample = feed.native(row.process.pid)
        self.call_from_thread(page.replace, lambda width: pages.native(sample, row.thread.tid, width))

    def action_record(self) -> None:
        """Save what was seen, in a worker, and say where."""
        if self.sources.record is None or self.feed is None or not self.live:
            self.notify("There is nothing to record from here: enginectl record does it live.", severity="warning")
            return
        self.notify("saving …", timeout=2)
        self.run_worker(partial(self._record, self.feed), thread=True, group="record", exclusive=True)

    def _record(self, feed: Feed) -> None:
        assert self.sources.record is not None
        try:
            told = partial(self.notify, self.sources.record(feed), timeout=15, markup=False)
        except Exception as error:
            told = partial(self.notify, f"not saved: {error}", severity="error", timeout=15, markup=False)
        self.call_from_thread(told)

    def action_pause(self) -> None:
        """Freeze the view or follow again; in a replay, stop or play."""
        self.playhead.toggle(len(self.moments))
        self.show()

    def action_seek(self, moments: int) -> None:
        """Go to an earlier or later moment, when the view is frozen."""
        if not self.playhead.following and self.moments:
            self.playhead.seek(self.playhead.index + moments, len(self.moments))
            self.show()

    def action_seek_end(self, end: int) -> None:
        """Go to the first or the last moment; in a running live view, to the first or last thread."""
        if self.playhead.following:
            self.action_move(end * 100_000)
        elif self.moments:
            self.playhead.seek(0 if end < 0 else len(self.moments) - 1, len(self.moments))
            self.show()

    def action_helpers(self) -> None:
        """Show or hide helper threads."""
        self.helpers = not self.helpers
        self.show()

    def action_sort(self) -> None:
        """The next order of the table."""
        self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        self.show()

    def on_panel_picked(self, event: Panel.Picked) -> None:
        """A click puts the cursor there; a second one on the same line opens it."""
        again = event.panel.selected == event.line and event.panel.has_focus
        if event.panel.id == "tree":
            self.branch = event.line
        elif event.panel.id == "threads":
            self.node = self.table.rows[event.line].node
        if again:
            self.action_open()
        else:
            self.call_after_refresh(self.show)
