"""A titled part of the screen that shows lines, keeps the selected one in sight and says how many are hidden."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.events import Click
from textual.message import Message

from enginectl.top.draw.style import DIM
from enginectl.top.widgets.lines import Lines

CURSOR = "reverse bold"


def visible(count: int, selected: int | None, first: int, room: int) -> int:
    """The first line to show so that the selected one is in sight and the end is not passed."""
    if selected is not None:
        first = min(first, selected)
        first = max(first, selected - room + 1)
    return max(0, min(first, count - room))


class Panel(Lines):
    """Lines below a title. `selected` is the line under the cursor, None when there is no cursor."""

    DEFAULT_CSS = "Panel { height: 1fr; }"

    class Picked(Message):
        """A line was clicked."""

        def __init__(self, panel: Panel, line: int) -> None:
            super().__init__()
            self.panel = panel
            self.line = line

    def __init__(self, title: str, *, focusable: bool = False, id: str) -> None:
        super().__init__(id=id)
        self.can_focus = focusable
        self._title = title
        self._heading: Text | None = None
        self._body: tuple[Text, ...] = ()
        self._footer: Text | None = None
        self._first = 0
        self.selected: int | None = None

    def put(
        self,
        body: Sequence[Text],
        *,
        title: str | None = None,
        selected: int | None = None,
        heading: Text | None = None,
        footer: Text | None = None,
    ) -> None:
        """Show these lines below the title."""
        self._body, self._title, self.selected = tuple(body), title or self._title, selected
        self._heading, self._footer = heading, footer
        self._arrange()

    def on_focus(self) -> None:
        """The title and the cursor tell where the keys go."""
        self._arrange()

    def on_blur(self) -> None:
        """As `on_focus`."""
        self._arrange()

    def on_resize(self) -> None:
        """Another height, other lines in sight."""
        self._arrange()

    def _arrange(self) -> None:
        width, height = self.content_size.width, self.content_size.height
        above = 1 + (self._heading is not None)
        room = max(1, height - above - (self._footer is not None and height > above + 3))
        self._first = visible(len(self._body), self.selected, self._first, room)
        shown = list(self._body[self._first : self._first + room])
        if self.selected is not None and 0 <= (at := self.selected - self._first) < len(shown):
            shown[at] = shown[at].copy()
            shown[at].pad_right(max(0, width - shown[at].cell_len))
            shown[at].stylize(CURSOR if self.has_focus else "underline")
        lines = [self._top(width, room)]
        lines += [self._heading] if self._heading is not None else []
        lines += shown
        if self._footer is not None and len(lines) < height:
            lines += [Text("")] * (height - len(lines) - 1) + [self._footer]
        self.put_lines(lines)

    def _top(self, width: int, room: int) -> Text:
        below = len(self._body) - self._first - room
        more = " ".join(p for p in (f"↑{self._first}" if self._first else "", f"↓{below}" if below > 0 else "") if p)
        title = Text(self._title)
        title.truncate(max(0, width - len(more) - 1), overflow="ellipsis")
        line = Text(no_wrap=True)
        line.append(title.plain, "bold reverse" if self.has_focus else f"bold {DIM}")
        line.append(f" {more}" if more else "", "bold")
        return line

    def on_click(self, event: Click) -> None:
        """Tell which line was clicked."""
        line = event.y - 1 - (self._heading is not None) + self._first
        if 0 <= line < len(self._body):
            self.post_message(self.Picked(self, line))
