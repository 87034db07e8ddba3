"""The keys, the columns and the letters."""

from __future__ import annotations

from rich.text import Text

from enginectl.render import words
from enginectl.top.draw.style import CLASSES, DIM, wrap
from enginectl.top.screenful import Screenful

KEYS = (
    ("↑ ↓", "move; the thread marked ! is where to look"),
    ("enter", "stack of the thread and the page of its wait point; on a process: only its threads"),
    ("tab", "next panel: threads, processes, devices, verdicts"),
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
_INDENT = 14
_COLUMNS = (
    ("! | *", "culprit; waits in its chain; where a healthy engine spends its time"),
    ("LAST 60 S", "share of the last minute in each wait class, not a time line (enter shows that)"),
    ("CPU GIL RQ", "in percent: of a core used; of looks holding the GIL; of time ready to run without a core"),
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
    lines = [Text("KEYS", "bold"), *_pairs(KEYS, width), Text("")]
    lines += [Text("COLUMNS", "bold"), *_pairs(_COLUMNS, width), Text("")]
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


def _pairs(pairs: tuple[tuple[str, str], ...], width: int) -> list[Text]:
    lines: list[Text] = []
    for key, meaning in pairs:
        for number, part in enumerate(wrap(meaning, width - _INDENT - 2, 4)):
            line = Text().append(f"  {key if number == 0 else '':{_INDENT}}", "bold")
            line.append(part)
            lines.append(line)
    return lines
