"""One file: streamed in pieces, told apart (recording, JSON, text), and assembled lane by lane."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from enginectl.model.observed import Frame, Recording
from enginectl.read import collapsed, envelope, faulthandler, pyspy_json, pyspy_text, recording
from enginectl.read.assemble import Lane
from enginectl.read.draft import Draft
from enginectl.read.lexer import lex
from enginectl.read.profile import expand
from enginectl.read.tokens import Kind, Layout, Token

JSON_LIMIT = 1 << 28
"""Bytes of one JSON document; what lies behind is not read."""
MEMO_LINES, MEMO_LINE_BYTES = 20_000, 400
LANES = 4096
SKIM_BYTES = 1 << 17
"""Files longer than this are skimmed: lines that cannot belong to a dump are passed over unread."""
QUIET_LINES, WINDOW_BYTES = 24, 1 << 16
_JSON_START = re.compile(rb"\s*(?:\[\s*(?:\{|\])|\{\s*\")")
_JSON_INSIDE = re.compile(r"\[\s*(?:\{.*)?$")
_HINTS = (
    b"hread ", b"Process ", b"spy", b"most recent call", b'File "', b".so", b"%Own", b"\n#", b");", b"frame #",
    b"atchdog", b"CUDA", b"Fatal", b"rror:", b"died", b"shared memory", b"throughput", b"#running-req",
    b"imed out", b"imeout",
    b"etract", b"Loading", b"\xe2\x86\x92", b"signal",
)  # fmt: skip
"""A stretch of text with none of these, and without a place such as `a.py:12)`, cannot matter."""
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z (?:std(?:out|err) F )?")
_PLACE = re.compile(rb"\.pyx?:\d{1,9}\)")
_MATTERS = re.compile(b"|".join([*map(re.escape, _HINTS), _PLACE.pattern]))


@dataclass(slots=True)
class Source:
    """What one file held. `recording` is set for enginectl's own recordings, and the rest is then empty."""

    drafts: list[Draft] = field(default_factory=list)
    recording: Recording | None = None
    lines: int = 0
    lines_used: int = 0
    torn: int = 0
    words: dict[str, None] = field(default_factory=dict)
    deaths: list[str] = field(default_factory=list)
    tool_errors: list[tuple[int | None, str]] = field(default_factory=list)


class TextReader:
    """Reads the lines of one file into lanes."""

    def __init__(self) -> None:
        self.lanes: dict[str, Lane] = {}
        self.lines = 0
        self._memos: dict[tuple[str, Layout], dict[bytes, Frame]] = {}
        self._memo_size = 0
        self._key = ""
        self._last: Lane | None = None
        self._announced: dict[str, Token] = {}
        self._json: list[str] = []
        self._json_size = 0
        self._json_depth = 0
        self._json_lane = ""
        self.json_lines = 0

    def feed_lines(self, lines: Sequence[bytes], quiet_limit: int = 1 << 62) -> int:
        """Take lines in until `quiet_limit` of them in a row could not matter. Returns how many were taken."""
        known, lane = self._memo_of(None), None
        quiet_run = 0
        for index, raw in enumerate(lines):
            frame = known.get(raw)
            if frame is not None and lane is not None:
                lane.frames.append(frame)
                continue
            raw = raw[: envelope.LINE_LIMIT]
            if lane is not None and not self._key:
                timed = _TIME.match(raw) if raw[4:5] == b"-" else None
                line = raw[timed.end() :] if timed else raw
                frame = known.get(line)
                if frame is not None:
                    lane.frames.append(frame)
                    continue
                frame = pyspy_text.parse_plain(line) if lane.layout is Layout.PYSPY else None
                if frame is None and lane.layout is Layout.FAULT:
                    frame = faulthandler.parse_plain(line)
                if frame is not None:
                    lane.frames.append(frame)
                    self._remember(known, line, frame)
                    continue
            matters = self.feed_line(raw)
            quiet_run = 0 if matters else quiet_run + 1
            lane = self._last
            if lane is None or not lane.plain:
                lane = None
            else:
                known = self._memo_of(lane)
            if quiet_run >= quiet_limit:
                self.lines += index + 1
                return index + 1
        self.lines += len(lines)
        return len(lines)

    def _memo_of(self, lane: Lane | None) -> dict[bytes, Frame]:
        """Frames by raw line, for the lines that follow in this lane and layout."""
        return self._memos.setdefault((self._key, lane.layout), {}) if lane is not None else {}

    def _remember(self, known: dict[bytes, Frame], raw: bytes, frame: Frame) -> None:
        if self._memo_size < MEMO_LINES and len(raw) <= MEMO_LINE_BYTES:
            known[raw] = frame
            self._memo_size += 1

    def feed_line(self, raw: bytes) -> bool:
        """Take one line in. Returns whether it could matter to a dump."""
        if b"\\n" in raw or b"<br" in raw or raw[:2] == b'{"':
            pieces = envelope.logical_lines(raw)
            if len(pieces) > 1 or pieces[0] != raw:
                return any([self._feed_raw(piece) for piece in pieces])
        return self._feed_raw(raw)

    def _feed_raw(self, raw: bytes) -> bool:
        if (self._json_depth or b"[" in raw[:200]) and self._feed_json(raw):
            return True
        token = lex(raw)
        self._feed_token(token)
        if token.kind is Kind.FRAME and token.frame is not None and self._last is not None and self._last.plain:
            self._remember(self._memo_of(self._last), raw, token.frame)
        return token.kind < Kind.BLANK

    def _feed_token(self, token: Token) -> None:
        key, tags = token.stamp.lane, token.stamp.tags
        if tags:
            if token.kind is Kind.PROCESS:
                if len(self._announced) < LANES:
                    self._announced[key + tags] = token
            elif token.kind in (Kind.FRAME, Kind.THREAD, Kind.PYTHON, Kind.BLANK) and (
                token.kind is not Kind.BLANK or key + tags in self.lanes
            ):
                key += tags  # a logger that heads every line: its tags tell the writers apart
                announced = self._announced.pop(key, None)
                if announced is not None and announced.process is not None:
                    self._lane(key).begin(announced.process, announced.stamp)
        self._key, self._last = key, self._lane(key)
        self._last.feed(token)

    def _lane(self, key: str) -> Lane:
        lane = self.lanes.get(key)
        if lane is None:
            if len(self.lanes) >= LANES:
                return next(iter(self.lanes.values()))
            lane = self.lanes[key] = Lane()
        return lane

    def _feed_json(self, raw: bytes) -> bool:
        """Collect a JSON array that stands between lines of text. Returns whether the line was part of one."""
        text, stamp, _ = envelope.strip(raw)
        body = text.strip()
        if not self._json_depth:
            if not _JSON_INSIDE.match(body) or (len(body) > 1 and '"' not in body):
                return False
            self._json, self._json_size, self._json_lane = [], 0, stamp.lane
        elif stamp.lane != self._json_lane:
            return False
        self._json.append(body)
        self._json_size += len(body)
        self._json_depth += body.count("[") + body.count("{") - body.count("]") - body.count("}")
        odd = len(self._json) > 1 and body[:1] not in '"{}[],' and body != ""
        if self._json_depth <= 0 or odd or self._json_size > JSON_LIMIT:
            self.end_json()
        return not odd

    def end_json(self) -> None:
        """Decode the array collected so far."""
        if not self._json:
            return
        text, self._json, self._json_depth = "\n".join(self._json), [], 0
        drafts, torn = pyspy_json.parse(text) if '"frames"' in text else ([], False)
        if drafts:
            self.json_lines += text.count("\n") + 1
            lane = self._lane(self._json_lane)
            lane.close()
            lane.drafts += drafts
            lane.torn += torn

    def quiet(self) -> bool:
        """Whether no dump is being read at this point."""
        return not self._json_depth and all(lane.head is None and lane.quiet_run > 2 for lane in self.lanes.values())

    def finish(self) -> Source:
        """End of the file."""
        self.end_json()
        source = Source(lines=self.lines, lines_used=self.json_lines)
        for lane in self.lanes.values():
            lane.finish()
            source.drafts += [part for draft in lane.drafts for part in expand(draft)]
            source.torn += lane.torn
            source.lines_used += lane.used + sum(draft.frames for draft in lane.drafts)
            source.words.update(lane.words)
            source.deaths += lane.deaths
            source.tool_errors += lane.tool_errors
        return source


def _first_that_matters(block: bytes, start: int, stop: int) -> int | None:
    """Where the first line that can matter is hit, or None. Plain searches first: they are the quick way to say no."""
    if not any(block.find(hint, start, stop) >= 0 for hint in _HINTS) and not _PLACE.search(block, start, stop):
        return None
    found = _MATTERS.search(block, start, stop)
    return found.start() if found else None


def _skim(reader: TextReader, block: bytes) -> None:
    """Feed the lines of a block of whole lines, passing over stretches that cannot matter."""
    position, length = 0, len(block)
    while position < length:
        stop = block.find(b"\n", min(length, position + WINDOW_BYTES))
        stop = stop if stop >= 0 else length - block.endswith(b"\n")
        if reader.quiet():
            found = _first_that_matters(block, position, stop)
            if found is None:
                reader.lines += block.count(b"\n", position, stop) + 1
                position = stop + 1
                continue
            start = max(position, block.rfind(b"\n", 0, found + 1) + 1)
            reader.lines += block.count(b"\n", position, start)
            position = start
        lines = block[position:stop].split(b"\n")
        taken = reader.feed_lines(lines, QUIET_LINES)
        position = stop + 1 if taken == len(lines) else position + sum(map(len, lines[:taken])) + taken


def _blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks of whole lines. A line longer than the limit is cut there, and its rest is dropped as it comes."""
    rest: list[bytes] = []
    size = 0
    for chunk in chunks:
        cut = chunk.rfind(b"\n")
        if cut < 0:
            if size < envelope.LINE_LIMIT:
                rest.append(chunk)
                size += len(chunk)
            continue
        whole = chunk[: cut + 1]
        yield b"".join([*rest, whole]) if size <= envelope.LINE_LIMIT else _rejoined(rest, whole)
        rest, size = [chunk[cut + 1 :]], len(chunk) - cut - 1
    if size:
        yield b"".join(rest)


def _rejoined(rest: list[bytes], chunk: bytes) -> bytes:
    """An over-long line, cut, and the lines behind it."""
    return b"".join(rest)[: envelope.LINE_LIMIT] + chunk[chunk.index(b"\n") :]


def read_text(chunks: Iterable[bytes]) -> Source:
    """The dumps in a text, in one pass and bounded memory. Errors: those of the chunks."""
    reader, total = TextReader(), 0
    for block in _blocks(chunks):
        total += len(block)
        if total > SKIM_BYTES:
            _skim(reader, block)
        else:
            reader.feed_lines(block.removesuffix(b"\n").split(b"\n"))
    return reader.finish()


def read_json(raw: bytes, name: str) -> Source | None:
    """A file that is one JSON document: a recording, py-spy JSON or speedscope; None when it is none of them."""
    text = raw.decode("utf-8", "replace")
    if recording.looks_like(text):
        return Source(recording=recording.parse(text, name))
    lines = text.count("\n") + 1
    if text.lstrip()[:1] == "[":
        drafts, torn = pyspy_json.parse(text)
        return Source(drafts=drafts, lines=lines, lines_used=lines, torn=int(torn)) if drafts else None
    if '"profiles"' not in text:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    stacks = collapsed.speedscope(document) if isinstance(document, dict) else []
    if not stacks:
        return None
    lane = Lane()
    for stack in stacks:
        lane.add_stack(stack)
    lane.finish()
    return Source(drafts=[p for d in lane.drafts for p in expand(d)], lines=lines, lines_used=lines)


def read_source(name: str, stream: BinaryIO) -> Source:
    """One file, whatever it is.

    Errors: UnreadableInput when it cannot be read or decompressed, or is a recording of another schema.
    """
    chunks = envelope.chunks_of(name, stream)
    first = next(chunks, b"")
    if not _JSON_START.match(first[:4096]) or envelope.is_json_log(first):
        return read_text(_rejoin([first], chunks))
    held, size = [first], len(first)
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size > JSON_LIMIT:
            break
    source = read_json(b"".join(held), name)
    return source if source is not None else read_text(_rejoin(held, chunks))


def _rejoin(held: list[bytes], chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield from held
    yield from chunks
