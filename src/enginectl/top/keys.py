"""The keys of the view. What they mean is told in `draw/help.py`; a test keeps the two together."""

from __future__ import annotations

from textual.binding import Binding

BINDINGS = (
    Binding("up,k", "move(-1)", "Up"),
    Binding("down,j", "move(1)", "Down"),
    Binding("pageup", "move(-10)", "Page up"),
    Binding("pagedown", "move(10)", "Page down"),
    Binding("tab", "other_panel(1)", "Next panel", priority=True),
    Binding("shift+tab", "other_panel(-1)", "Panel before", priority=True),
    Binding("enter", "open", "Stack"),
    Binding("c", "chain", "Blame chain"),
    Binding("n", "native", "Native sample"),
    Binding("r", "record", "Record now"),
    Binding("p,space", "pause", "Pause"),
    Binding("left", "seek(-1)", "Earlier"),
    Binding("right", "seek(1)", "Later"),
    Binding("home", "seek_end(-1)", "First"),
    Binding("end", "seek_end(1)", "Last"),
    Binding("f", "helpers", "Helpers"),
    Binding("s", "sort", "Sort"),
    Binding("question_mark", "help", "Help"),
    Binding("q", "quit", "Quit"),
)
