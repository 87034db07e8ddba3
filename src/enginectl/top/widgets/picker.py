"""Which of several engines to watch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen

from enginectl.render import words
from enginectl.top.draw.style import fit
from enginectl.top.moment import Choice
from enginectl.top.widgets.panel import Panel


def choice_line(choice: Choice, width: int) -> Text:
    """One engine: pid, name, processes, uptime and command."""
    up = words.seconds(float(round(choice.uptime_seconds))) if choice.uptime_seconds is not None else words.UNREAD
    head = f"{choice.pid:>8}  {fit(choice.engine, 12)} {words.plural(choice.processes, 'process', 'processes'):12} "
    return Text(fit(f"{head}up {up:14} {words.clean(choice.title)}", width), no_wrap=True)


class Picker(ModalScreen[int | None]):
    """A list of engines; the result is the pid of the chosen one, None for none."""

    DEFAULT_CSS = """
    Picker { align: center middle; background: $background; }
    Picker > Panel { width: 100%; height: 1fr; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("up,k", "move(-1)", "Up"),
        ("down,j", "move(1)", "Down"),
        ("enter", "choose", "Watch"),
        ("escape,q", "dismiss(None)", "Quit"),
    ]

    def __init__(self, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._choices = tuple(choices)
        self._at = 0

    def compose(self) -> ComposeResult:
        """The list."""
        yield Panel("SEVERAL ENGINES: which one?  ↑↓ move  enter watch  q quit", focusable=True, id="engines")

    def on_mount(self) -> None:
        """Put the cursor on the first one."""
        self.query_one(Panel).focus()
        self.call_after_refresh(self._show)

    def on_resize(self) -> None:
        """Lines are cut to the new width."""
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        panel = self.query_one(Panel)
        panel.put([choice_line(c, max(20, panel.size.width)) for c in self._choices], selected=self._at)

    def action_move(self, lines: int) -> None:
        """Move the cursor."""
        self._at = max(0, min(len(self._choices) - 1, self._at + lines))
        self._show()

    def action_choose(self) -> None:
        """Watch the engine under the cursor."""
        self.dismiss(self._choices[self._at].pid)

    def on_panel_picked(self, event: Panel.Picked) -> None:
        """A click chooses at once."""
        self.dismiss(self._choices[event.line].pid)
