"""One stack frame as one line: the function without template arguments, the file without where it is installed."""

from __future__ import annotations

import re

from rich.text import Text

from enginectl.render import words
from enginectl.top.draw.style import DIM

_INSTALLED = re.compile(r"^.*/(?:site-packages|dist-packages|lib/python3\.\d+)/")
_PLACE = re.compile(r"^(?P<function>.*?) \((?P<place>[^()]*)\)$")
_KEPT_FOLDERS = 4


def frame_line(frame: str, width: int) -> Text:
    """`function (file:line)` -> one line of at most `width` columns."""
    found = _PLACE.match(words.clean(frame))
    function, place = (found["function"], short_file(found["place"])) if found else (words.clean(frame), "")
    line, function = Text(no_wrap=True), without_templates(function)
    if len(function) + len(place) + 4 > width:
        place = place.rpartition("/")[2]
    line.append(f"  {function}")
    line.truncate(max(20, width - len(place) - 2), overflow="ellipsis")
    line.append(f"  {place}", DIM)
    line.truncate(width, overflow="ellipsis")
    return line


def without_templates(function: str) -> str:
    """`a<b<c>>::d(e)` -> `a::d`: what C++ adds to a name is longer than the screen. Python names stay."""
    if "::" not in function:
        return function
    kept, depth = [], 0
    for character in function.replace("(anonymous namespace)", "anonymous"):
        depth += character in "<("
        if depth == 0:
            kept.append(character)
        depth -= character in ">)" and depth > 0
    return "".join(kept).replace(" const", "") or function


def short_file(place: str) -> str:
    """The path below site-packages or the standard library, else its last folders."""
    short = _INSTALLED.sub("", place)
    parts = short.split("/")
    return short if short != place or len(parts) <= _KEPT_FOLDERS + 1 else "/".join(("…", *parts[-_KEPT_FOLDERS:]))
