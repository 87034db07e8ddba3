"""A page over the whole screen: scrolls, follows the moments, closes with escape or q."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

Draw = Callable[[int], Sequence[Text]]
"""Width in columns -> lines."""


class Page(ModalScreen[None]):
    """Lines that `draw` makes; `again` draws them anew."""

    DEFAULT_CSS = """
    Page { align: center middle; background: $background; }
    Page > VerticalScroll { width: 100%; height: 1fr; padding: 0 1; }
    Page > Static { height: 1; text-style: bold reverse; width: 100%; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q,enter", "dismiss", "Close"),
        ("down,j", "move(1)", "Down"),
        ("up,k", "move(-1)", "Up"),
    ]

    def __init__(self, title: str, draw: Draw) -> None:
        super().__init__()
        self._title = title
        self._draw = draw

    def compose(self) -> ComposeResult:
        """A title line, and the text."""
        yield Static(f"{self._title}   ↑↓ scroll   esc back", markup=False)
        with VerticalScroll():
            yield Static(id="page-text", markup=False)

    def on_mount(self) -> None:
        """Draw at once: title and text come together."""
        self.again()

    def on_resize(self) -> None:
        """Another width, other line breaks."""
        self.call_after_refresh(self.again)

    def replace(self, draw: Draw) -> None:
        """Show something else, when it has come."""
        self._draw = draw
        self.again()

    def again(self) -> None:
        """Draw the newest state."""
        if self.is_attached:
            lines = self._draw(max(20, self.app.size.width - 4))
            self.query_one("#page-text", Static).update(Text("\n").join(lines))

    def action_move(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)
