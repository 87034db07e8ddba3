"""A titled part of the screen that shows lines, keeps the selected one in sight and says how many are hidden."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.events import Click
from textual.message import Message

from enginectl.top.draw.style import DIM
from enginectl.top.widgets.lines import Lines

CURSOR, CURSOR_STYLE, CURSOR_AWAY = "▸", "bold on #24426b", "on #2c2c2c"


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
        self._tail: tuple[Text, ...] = ()
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
        tail: Sequence[Text] = (),
    ) -> None:
        """Show these lines below the title, and what fits of `tail` in the room that they leave."""
        self._body, self._title, self.selected = tuple(body), title or self._title, selected
        self._heading, self._footer, self._tail = heading, footer, tuple(tail)
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
            shown[at] = self._under_cursor(shown[at], width)
        lines = [self._top(width, room)]
        lines += [self._heading] if self._heading is not None else []
        lines += [*shown, *self._tail[: max(0, room - len(shown))]]
        if self._footer is not None and len(lines) < height:
            lines += [Text("")] * (height - len(lines) - 1) + [self._footer]
        self.put_lines(lines)

    def _under_cursor(self, line: Text, width: int) -> Text:
        line = line.copy()
        if line.plain[1:2] == " ":
            line = Text.assemble(line[:1], (CURSOR, "bold"), line[2:], no_wrap=True)
        line.pad_right(max(0, width - line.cell_len))
        line.stylize_before(CURSOR_STYLE if self.has_focus else CURSOR_AWAY)
        return line

    def shift(self, lines: int) -> None:
        """Scroll a panel that has no cursor."""
        self._first += lines
        self._arrange()

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
