"""Lines of a fixed width: wide characters counted, words wrapped, commands kept copyable.

A `Line` is a tuple of (text, style) segments; the styles are rich's and are dropped in plain output.
"""

from __future__ import annotations

import re

from rich.cells import cell_len

from enginectl.render import words

Line = tuple[tuple[str, str], ...]

_SHELL_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*'|["'])+""")


def width_of(text: str) -> int:
    """Columns that `text` takes, two for wide characters. Shape: one line -> columns."""
    return len(text) if text.isascii() else sum(cell_len(character) for character in text)


def chop(text: str, width: int) -> list[str]:
    """Pieces of at most `width` columns (width >= 2)."""
    pieces, piece, used = [], "", 0
    for character in text:
        columns = width_of(character)
        if used + columns > width and piece:
            pieces.append(piece)
            piece, used = "", 0
        piece, used = piece + character, used + columns
    return [*pieces, piece] if piece else pieces


def cut(text: str, width: int, *, keep: str = "start") -> str:
    """`text` in at most `width` columns, the lost part shown as "…"; `keep` is `start` or `end`."""
    if width_of(text) <= width:
        return text
    if keep == "end":
        return "…" + (chop(text[::-1], max(2, width - 1))[0])[::-1]
    return chop(text, max(2, width - 1))[0] + "…"


def pad(text: str, width: int) -> str:
    """`text` followed by blanks up to `width` columns."""
    return text + " " * max(0, width - width_of(text))


def wrap(text: str, width: int) -> list[str]:
    """Words of `text` in lines of at most `width` columns; a longer word is broken. No text -> no line."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and width_of(line) + 1 + width_of(word) <= width:
            line = f"{line} {word}"
            continue
        if line:
            lines.append(line)
        *full, line = chop(word, width)
        lines.extend(full)
    return [*lines, line] if line else lines


def paragraph(text: str, width: int, *, first: str = "", rest: str = "", style: str = "") -> list[Line]:
    """Wrapped text behind `first` on the first line and `rest` on the others."""
    wrapped = wrap(text, max(8, width - max(width_of(first), width_of(rest))))
    return [((first if number == 0 else rest, ""), (line, style)) for number, line in enumerate(wrapped)]


def command(text: str, width: int, *, indent: str = "    ") -> list[Line]:
    """A command to copy, on its own lines; a long one is continued with a backslash between its words.

    Shape: one or several lines of text -> lines of at most `width` columns. A single word longer than the line is
    continued at column 0, where the shell joins it again.
    """
    lines: list[str] = []
    for source in words.clean_block(text).strip("\n").split("\n"):
        lines.extend([indent + source] if width_of(indent + source) <= width else _continued(source, width, indent))
    return [((line, "cyan"),) for line in lines]


def _continued(source: str, width: int, indent: str) -> list[str]:
    margin = indent + source[: len(source) - len(source.lstrip())][: max(0, width // 2)]
    lines, line = [], ""
    for word in _SHELL_WORD.findall(source):
        candidate = f"{line} {word}" if line else f"{margin}{word}"
        if width_of(candidate) <= width - 2:
            line = candidate
            continue
        if line:
            lines.append(f"{line} \\")
        *full, line = chop(f"{margin}  {word}" if line else f"{margin}{word}", width - 2)
        lines.extend(f"{piece}\\" for piece in full)
    return [*lines, line]


def remedy(text: str, width: int, *, first: str = "    -> ", rest: str = "       ") -> list[Line]:
    """Prose with commands in it: lines that start with `$ ` or two blanks are kept as commands."""
    lines: list[Line] = []
    for source in words.clean_block(text).strip("\n").split("\n"):
        if source.startswith(("$ ", "  ")):
            lines.extend(command(source.removeprefix("$ "), width, indent=rest))
        else:
            lines.extend(paragraph(source, width, first=first if not lines else rest, rest=rest))
    return lines


def spread(left: str, right: str, width: int, *, left_style: str = "", right_style: str = "") -> Line:
    """`left` and, flush with the right margin, `right`; `left` is cut when both do not fit."""
    if not right:
        return ((cut(left, width), left_style),)
    right = cut(right, width // 2)
    room = max(4, width - width_of(right) - 2)
    return (pad(cut(left, room), room), left_style), ("  ", ""), (right, right_style)


def plain(line: Line) -> str:
    """The text of a line, without styles and trailing blanks."""
    return "".join(text for text, _ in line).rstrip()
