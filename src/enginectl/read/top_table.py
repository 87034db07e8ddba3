"""Tables of `py-spy top`: `%own %total own-time total-time function (file)`, and the lines above them."""

from __future__ import annotations

import re

from enginectl.model.observed import Frame
from enginectl.read.naming import clean, split_title
from enginectl.read.pyspy_text import parse_cut, parse_frame
from enginectl.read.tokens import ProcessHead, Row

_HEAD = re.compile(r"\s*%Own\s+%Total\s+OwnTime\s+TotalTime\s+Function")
_ROW = re.compile(r"\s*(\d{1,3}\.\d\d)%\s+(\d{1,3}\.\d\d)%\s+(\d{1,7}\.?\d{0,3})s\s+(\d{1,7}\.?\d{0,3})s\s+(\S.*)$")
_SOURCE = re.compile(
    r"Collecting samples from '(.{1,1000})' \(python v(\d[\w.]{0,20})\)|Collecting samples from '(?:pid: ?)?(\d{1,10})'"
)
_QUIET = re.compile(r"Total Samples \d|GIL: {1,3}\d|Press Control-C")


def is_head(body: str) -> bool:
    """Whether the line is the head of a table or one of the lines above it."""
    return _HEAD.match(body) is not None or _QUIET.match(body) is not None


def parse_row(body: str) -> Row | None:
    """One row, else None. Shares are returned as ratios, times in seconds."""
    found = _ROW.match(body)
    if not found:
        return None
    own, total, own_seconds, total_seconds, text = found.groups()
    frame = parse_frame(text) or parse_cut(text) or Frame(function=clean(text), file="")
    return Row(float(own) / 100, float(total) / 100, float(own_seconds), float(total_seconds), frame)


def parse_process(body: str) -> ProcessHead | None:
    """The title and Python version of `Collecting samples from '…' (python v3.12)`, else None."""
    found = _SOURCE.match(body)
    if not found:
        return None
    if found.group(3):
        return ProcessHead(int(found.group(3)), weak=True)
    return ProcessHead(None, split_title(found.group(1))[0], found.group(2), weak=True)
