"""A widget of text lines that draws again only the lines that differ: most of a screen stays from second to second."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

_BLANK = Text("")


def same(one: Text, other: Text) -> bool:
    """Whether two lines look the same."""
    return one.plain == other.plain and one.style == other.style and one.spans == other.spans


class Lines(Widget):
    """Shows `lines` from the top; what does not fit is cut."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._lines: tuple[Text, ...] = ()
        self._base: Style | None = None

    def put_lines(self, lines: Sequence[Text]) -> None:
        """Show these lines instead of those before."""
        before, self._lines = self._lines, tuple(lines)
        count = max(len(before), len(self._lines))
        changed = [y for y in range(count) if not same(_line(before, y), _line(self._lines, y))]
        if changed:
            self.refresh(*(Region(0, y, self.content_size.width, 1) for y in changed))

    def notify_style_update(self) -> None:
        """Other colours: ask for them again."""
        self._base = None
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """One line of the content."""
        style = self._base = self._base or self.rich_style
        text = _line(self._lines, y)
        console = self.app.console
        segments = [s for s in text.render(console, end="") if s.text]
        strip = Strip(Segment.apply_style(segments, style + console.get_style(text.style)))
        return strip.adjust_cell_length(self.content_size.width, style)


def _line(lines: Sequence[Text], y: int) -> Text:
    return lines[y] if y < len(lines) else _BLANK
