"""The four wire types of protobuf that a trace needs, written by hand: no package is worth its weight for them."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    """An integer as the wire has it; a negative one as its 64-bit two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """An integer or enum field."""
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    """A double field."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def block(field: int, value: bytes) -> bytes:
    """A message or bytes field."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """A string field."""
    return block(field, value.encode("utf-8", "replace"))
