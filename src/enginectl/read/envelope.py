"""What surrounds a dump: line ends, colours, log prefixes, quotes, issue-page markup, and compression of the file.

Prefixes are stripped repeatedly, because they nest (container time, then service name, then the engine's own).
What a prefix tells about the writer is kept in a `Stamp`.
"""

from __future__ import annotations

import codecs
import html
import json
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from enginectl.errors import UnreadableInput
from enginectl.read.naming import clean, full_title
from enginectl.read.tokens import NO_STAMP, Stamp

CHUNK_BYTES = 1 << 18
LINE_LIMIT = 1 << 16
"""Bytes of a line that are kept; what lies behind is read and dropped."""
MAX_BYTES = 1 << 36

_MARKUP = re.compile(r"</|<(?:br|pre|code|p|div|td|tr|li|span|summary|details|blockquote)\b")
_TAG = re.compile(
    r"</?(?:pre|code|p|br|div|span|td|tr|th|table|tbody|thead|li|ul|ol|blockquote|details|summary|strong|em|b|i|a|tt|samp"
    r"|kbd|html|body|head|h[1-6]|hr|clipboard-copy|svg|path|button)(?:\s[^<>]{0,2000})?/?>"
)
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#39|#x27|#34|#x2[Ff]|#60|#62|rarr);")
_ANSI = re.compile(
    "\x1b\\[[0-9;?]{0,40}[ -/]?[@-~]|\x1b\\][^\x07\x1b]{0,400}(?:\x07|\x1b\\\\)|\x1b[()][0-9A-B]|\x9b[0-9;?]{0,40}[@-~]"
    r"|(?:\\u001[bB]|\\x1[bB]|\\033|\\e|\^\[)\[[0-9;]{0,40}m"
)
_ANSI_HINT = re.compile("[\x1b\x9b]|\\\\[ux0e]|\\^\\[")
_LITERAL_CR = re.compile(r"(?:\^M|\\r)+$")

_QUOTE = re.compile(r"(?:> ?){1,8}")
_BULLET = re.compile(r"(?:[*+•‣◦-]|\d{1,3}[.)]) {1,3}(?=\S)")
_HEADING = re.compile(r"#{1,6} (?=[A-Za-z*`])")
_DOCKER = re.compile(r"[A-Za-z0-9][\w.-]{0,80} {0,30}\| ?(?=$|\S|\s)")
_KUBECTL = re.compile(r"\[(?:pod|container)/[\w./-]{1,200}\] ?")
_ACTOR = re.compile(
    r"\(([A-Za-z_][\w.:-]{0,100})((?: \w{1,12}=[\w.:-]{1,64})*?),? ?pid=(\d{1,10})"
    r"((?:,? \w{1,12}=[\w.:\[\]-]{1,64})*)\) ?"
)
_JOURNAL = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,80} ([\w@./:-]{1,80})\[(\d{1,10})\]: ?")
_ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?:Z|[+-]\d\d:?\d\d)?(?: std(?:out|err) [FP])? ?")
_RANK_PREFIX = re.compile(
    r"\[(?:rank|default|worker|node)?[-_ ]?(\d{1,6})\]:? ?|\[\d{1,6},\d{1,6}\]<std(?:out|err)>: ?"
)
_HEAD = re.compile(r"\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)((?:,? [A-Z]{2,4}\d{1,6})*)\]:? ?")
_TAGS_ONLY = re.compile(r"\[((?:(?:DP|TP|PP|EP)\d{1,6}[ ,]?){1,4})\]:? ?")
_LEVEL = re.compile(r"(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL)[: ]")
_LEVEL_HEAD = re.compile(
    r"(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})? "
    r"(?:\[[\w./-]{1,200}:\d{1,6}\] ?)?"
)
_PLAIN_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?: ?[-|:])? ?")
_LOGGED_HEAD = re.compile(
    r"(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL)[: ]|\[(?:INFO|WARNING|ERROR|DEBUG)\b"
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d|\[[IWEF]\d{4,}"
    r"|\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d|\[\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d[ .,]"
)
_REPEATED = re.compile(r"\s?\[repeated \d{1,6}x across cluster\].{0,200}$")
_STARTERS = frozenset("([>*+•‣◦-#`|") | frozenset("0123456789")


class Stripped(NamedTuple):
    """A line without its envelope: the text (indentation kept), who wrote it, and whether a logger's head led it."""

    text: str
    stamp: Stamp = NO_STAMP
    logged: bool = False


def _actor_title(name: str, extra: str) -> str:
    """The process title behind a `(NAME pid=N)` prefix, in the way that the process itself would be titled."""
    if "ip=" in extra or "::" in name:
        return name if "::" in name else f"ray::{name}"
    return full_title(name)


def tidy(raw: bytes) -> str:
    """A raw line as text: decoded, without CR, colours and markup. Other control characters stay."""
    text = raw.decode("utf-8", "replace")
    if not text.isprintable() or "\\" in text or "^" in text:
        if "\r" in text:
            text = text.rstrip("\r").rpartition("\r")[2]
        if _ANSI_HINT.search(text):
            text = _ANSI.sub("", text)
        text = _LITERAL_CR.sub("", text).replace("\xa0", " ").replace("\ufeff", "")
    if "“" in text or "”" in text:
        text = text.replace("“", '"').replace("”", '"')
    if "<" in text and _MARKUP.search(text):
        text = _TAG.sub("", text)
    if "&" in text and _ENTITY.search(text):
        text = _ENTITY.sub(lambda m: html.unescape(m.group()).replace("\xa0", " "), text)
    return text


def strip(raw: bytes) -> Stripped:
    """One raw line without its envelope. Errors: none."""
    text = tidy(raw)
    if not text:
        return Stripped("")
    first = text[0]
    if first in " \t":
        body = text.lstrip()
        if not (body.startswith(("(", "> ", "- ", "* ", "• ", "`")) and ("pid=" in body or body[0] != "(")):
            return Stripped(text.rstrip())
        text = body
    elif first not in _STARTERS and not (first.isalnum() and _worth_a_look(text)):
        return Stripped(text.rstrip())
    return _prefixes(text)


def _worth_a_look(text: str) -> bool:
    return (
        " | " in text[:120]
        or text.endswith("|")
        or (text[:3].istitle() and text[3:4] == " ")
        or bool(_LEVEL.match(text))
    )


def _prefixes(text: str) -> Stripped:
    lane: list[str] = []
    pid: int | None = None
    title = tags = when = ""
    logged = False
    for _ in range(8):
        first = text[:1]
        if first == ">" and (found := _QUOTE.match(text)):
            pass
        elif first == "(" and (found := _ACTOR.match(text)):
            pid, title = int(found.group(3)), _actor_title(found.group(1), found.group(4))
            lane.append(f"{found.group(1)}{found.group(2)} {found.group(3)}{found.group(4)}")
        elif first == "[" and (found := _HEAD.match(text)):
            when, logged = found.group(1), True
            tags = found.group(2).replace(",", " ").strip()
        elif first == "[" and (found := _TAGS_ONLY.match(text)):
            tags = found.group(1).replace(",", " ").strip()
        elif first == "[" and (found := _KUBECTL.match(text) or _RANK_PREFIX.match(text)):
            lane.append(found.group())
        elif first.isdigit() and (found := _ISO.match(text)):
            when = found.group(1)
        elif first.isdigit() and (found := _PLAIN_TIME.match(text)):
            when, logged = found.group(1), True
        elif first.isupper() and (found := _LEVEL_HEAD.match(text)):
            logged = True
        elif first.isupper() and (found := _JOURNAL.match(text)):
            lane.append(found.group(1) + found.group(2))
            pid = pid or int(found.group(2))
        elif first.isalnum() and (found := _DOCKER.match(text)):
            lane.append(found.group().strip())
        elif (not lane and (found := _BULLET.match(text))) or (found := _HEADING.match(text)):
            pass
        else:
            break
        text = text[found.end() :]
    logged = logged or bool(_LOGGED_HEAD.match(text))
    if lane and text.endswith(("cluster]", ".)")):
        text = _REPEATED.sub("", text)
    text = text.rstrip().strip("`") if "`" in text else text.rstrip()
    if text.startswith("**") and text.endswith("**"):
        text = text.strip("*")
    return Stripped(text, Stamp(clean("/".join(lane)), pid, clean(title), tags, when), logged)


def _gunzip(stream: BinaryIO, head: bytes, name: str) -> Iterator[bytes]:
    """Decompressed chunks; a cut or damaged end gives what came before it."""
    machine, data, produced = zlib.decompressobj(31), head, False
    while True:
        try:
            out = machine.decompress(data, CHUNK_BYTES)
        except zlib.error as error:
            if not produced:
                raise UnreadableInput(f"{name} is not readable gzip data: {error}") from None
            return
        if out:
            produced = True
            yield out
        if machine.eof:
            data = machine.unused_data.lstrip(b"\0")
            machine = zlib.decompressobj(31)
        else:
            data = machine.unconsumed_tail
        data = data or stream.read(CHUNK_BYTES)
        if not data:
            return


def _plain(stream: BinaryIO, head: bytes) -> Iterator[bytes]:
    while head:
        yield head
        head = stream.read(CHUNK_BYTES)


def _from_utf16(chunks: Iterator[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "replace")


def chunks_of(name: str, stream: BinaryIO) -> Iterator[bytes]:
    """The bytes of a file in pieces of bounded size: gzip unpacked, UTF-16 made UTF-8, byte-order marks removed.

    Errors: UnreadableInput when reading fails or the file only looks like gzip.
    """
    try:
        head = stream.read(CHUNK_BYTES)
        chunks = _gunzip(stream, head, name) if head[:2] == b"\x1f\x8b" else _plain(stream, head)
        first = next(chunks, b"")
        if first[:2] in (b"\xff\xfe", b"\xfe\xff"):
            chunks = _from_utf16(_chain(first, chunks))
            first = next(chunks, b"")
        total = 0
        for chunk in _chain(first.removeprefix(b"\xef\xbb\xbf"), chunks):
            yield chunk
            total += len(chunk)
            if total > MAX_BYTES:
                return
    except (OSError, ValueError) as error:
        raise UnreadableInput(f"{name} cannot be read: {error}") from None


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


_UNESCAPE = {b"\\n": b"\n", b"\\t": b"\t", b'\\"': b'"', b"\\\\": b"\\"}
_ESCAPE = re.compile(rb'\\[nt"\\]')
_BREAK = re.compile(rb"<br ?/?>")
_JSON_LOG = re.compile(rb'\{"(?:log|message|msg|time|timestamp|stream|level|ts)":')


def logical_lines(raw: bytes) -> tuple[bytes, ...] | list[bytes]:
    """One physical line as the lines it stands for: JSON log records, escaped line ends, `<br>`."""
    if raw[:2] == b'{"' and _JSON_LOG.match(raw):
        record = _json_log(raw)
        if record is not None:
            return record
    if b"\\n" in raw and raw[:8].strip() and (b"Thread " in raw or b".py" in raw or b"Process " in raw):
        raw = _ESCAPE.sub(lambda m: _UNESCAPE[m.group()], raw)
    if b"<br" in raw:
        raw = _BREAK.sub(b"\n", raw)
    return raw.split(b"\n")


def _json_log(raw: bytes) -> list[bytes] | None:
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    text = next((record[key] for key in ("log", "message", "msg") if isinstance(record.get(key), str)), None)
    return None if text is None else text.rstrip("\n").encode("utf-8", "replace").split(b"\n")


def is_json_log(head: bytes) -> bool:
    """Whether a file begins as a log of JSON records, one a line."""
    return _JSON_LOG.match(head) is not None
