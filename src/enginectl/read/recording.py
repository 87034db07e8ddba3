"""enginectl's own recordings: one JSON object, normally compressed, read to the last complete snapshot when cut."""

from __future__ import annotations

import json
import re

import msgspec

from enginectl.errors import UnreadableInput
from enginectl.model.observed import SCHEMA_VERSION, Gap, Recording, Snapshot

_LOOKS = re.compile(r'\s*\{\s*"(?:schema_version|made_by|enginectl_version|host|target_pid|processes|snapshots)"\s*:')
_VERSION = re.compile(r'"schema_version"\s*:\s*(\d{1,9})')
_SNAPSHOTS = re.compile(r'"snapshots"\s*:\s*\[')
_DECODER = msgspec.json.Decoder(Recording)
_SNAPSHOT = msgspec.json.Decoder(Snapshot)
CUT = Gap(
    source="recording",
    reason="the recording is cut; its last complete snapshot is the end",
    remedy="record again, and let the recording end by itself",
)


def looks_like(text: str) -> bool:
    """Whether the text begins as a recording does."""
    return _LOOKS.match(text[:200]) is not None


def parse(text: str, name: str = "recording") -> Recording:
    """The recording in the text. A cut one carries the gap `CUT` and what was complete.

    Errors: UnreadableInput for another schema version, and when nothing of it can be decoded.
    """
    found = _VERSION.search(text[:4096])
    if found and int(found.group(1)) != SCHEMA_VERSION:
        raise UnreadableInput(
            f"{name} has recording schema {found.group(1)}, this enginectl reads {SCHEMA_VERSION}",
            fix="Read it with the enginectl that made it.",
        )
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        salvaged = _salvage(text)
    if salvaged is None:
        raise UnreadableInput(f"{name} begins as a recording and cannot be decoded")
    return salvaged


def _salvage(text: str) -> Recording | None:
    """The part of a cut recording in front of its first incomplete snapshot, or None when its head is damaged."""
    found = _SNAPSHOTS.search(text)
    if found is None:
        return None
    scan, index, snapshots = json.JSONDecoder(), found.end(), []
    while index < len(text):
        while index < len(text) and text[index] in " \t\r\n,":
            index += 1
        try:
            _, end = scan.raw_decode(text, index)
            snapshots.append(_SNAPSHOT.decode(text[index:end]))
        except (ValueError, RecursionError, msgspec.DecodeError):
            break
        index = end
    try:
        head = _DECODER.decode(text[: found.end()] + "]}")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return msgspec.structs.replace(head, snapshots=tuple(snapshots), gaps=(*head.gaps, CUT))
