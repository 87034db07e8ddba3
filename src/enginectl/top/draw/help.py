"""The keys, the columns and the letters."""

from __future__ import annotations

from rich.text import Text

from enginectl.render import words
from enginectl.top.draw.style import CLASSES, DIM
from enginectl.top.screenful import Screenful

KEYS = (
    ("↑ ↓", "move; the thread marked ! is where to look"),
    ("enter", "stack of the thread and the page of its wait point; on a process: only its threads"),
    ("tab", "go between processes and threads"),
    ("c", "blame chain: who waits for whom"),
    ("n", "one native sample of the thread (reads C frames; the target stands still a little longer)"),
    ("r", "record now: save what was seen to a file"),
    ("p", "pause: freezes the view, keeps collecting; in a replay, play or stop"),
    ("← → home end", "earlier, later, first, last: while paused and in a replay"),
    ("f", "show or hide helper threads"),
    ("s", "sort by blame, CPU, role or process"),
    ("?", "this page"),
    ("q", "quit; the target is never changed"),
)
_COLUMNS = (
    ("! | *", "culprit; waits in its chain; where a healthy engine spends its time"),
    ("LAST 60 S", "share of the last minute in each wait class, not a time line (enter shows that)"),
    ("CPU GIL RUNQ", "cores used; share of looks holding the GIL; share of time ready without a core"),
)


def key_line(width: int, *, live: bool) -> Text:
    """The bottom line of the screen: as many keys as fit, the commonest first."""
    line = Text(" ", no_wrap=True)
    seek = (("←→", "seek"), ("p", "play/stop")) if not live else (("p", "pause"),)
    pairs = (("enter", "stack"), ("c", "chain"), *seek, ("f", "helpers"), ("s", "sort"), ("?", "help"), ("q", "quit"))
    more = (("n", "native"), ("r", "record")) if live else ()
    for key, word in (*pairs[:2], *more, *pairs[2:]):
        if len(line.plain) + len(key) + len(word) + 3 > width:
            break
        line.append(key, "bold reverse")
        line.append(f" {word} ")
    return line


def help_lines(screen: Screenful | None, width: int) -> list[Text]:
    """The help page, with what this view costs."""
    lines = [Text("KEYS", "bold"), *(_pair(*pair, 14, width) for pair in KEYS), Text("")]
    lines += [Text("COLUMNS", "bold"), *(_pair(*pair, 14, width) for pair in _COLUMNS), Text("")]
    lines.append(Text("LETTERS", "bold"))
    for name, look in CLASSES.items():
        line = Text("  ")
        line.append(f" {look.letter} ", look.style)
        line.append(f" {name:11} ")
        line.append(words.wait_class(name), DIM)
        lines.append(line)
    pace = screen.moment.pace if screen else None
    if pace is not None:
        cost = "not measured yet" if pace.own_cpu_ratio is None else f"{pace.own_cpu_ratio:.1%} of a core"
        lines += [Text(""), Text("COST", "bold")]
        lines.append(Text(f"  stacks every {words.seconds(pace.stack_seconds)}; own CPU {cost}; "
                          f"last pause of the target at most {words.seconds(pace.pause_seconds)}"))  # fmt: skip
    return lines


def _pair(key: str, meaning: str, indent: int, width: int) -> Text:
    line = Text(f"  {key:{indent}}", "bold")
    line.append(meaning)
    line.truncate(width, overflow="ellipsis")
    return line
