"""Mutates saved dumps and reads them: no crash, no hang, nothing unprintable, everything encodable.

Usage: `python tools/fuzz_read.py [--seconds N] [--seed N] [FILES…]`. Exit status 1 with the input's file on a failure.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import msgspec

from enginectl.errors import EnginectlError
from enginectl.read import read

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "read"
SLOW_SECONDS_PER_MEGABYTE = 20.0
JUNK = (
    b"\0", b"\xff\xfe", b"\x1b[31m", b"\x9b", b"\r", b"<br>", b"&lt;", b"\\n", b"> ", b"(a pid=1) ", b"[", b"{\"",
    b"]", b"(", b")", b" (", b"::", b"<", b"-> ", b"Thread ", b"Process 1: ", b"\"", b"....", b"9" * 30, b" " * 50,
    b"%", b";", b"\xe2\x80\xae", b"Traceback (most recent call last):\n", b"Error: ", b"    ", b"\t", b"#0  ",
    b" at x:1", b"Locals:\n",
)  # fmt: skip


def mutate(raw: bytes, seeds: Sequence[bytes], dice: random.Random) -> bytes:
    """One of many small or large changes."""
    data = bytearray(raw)
    for _ in range(dice.randint(1, 8)):
        at = dice.randint(0, len(data))
        kind = dice.randrange(8)
        if kind == 0:
            data[at : at + dice.randint(0, 40)] = b""
        elif kind == 1:
            data[at:at] = dice.choice(JUNK) * dice.choice((1, 1, 2, 50, 2000))
        elif kind == 2 and data:
            data[at % len(data)] = dice.randrange(256)
        elif kind == 3:
            other = dice.choice(seeds)
            start = dice.randint(0, len(other))
            data[at:at] = other[start : start + dice.randint(0, 400)]
        elif kind == 4:
            lines = bytes(data).split(b"\n")
            dice.shuffle(lines)
            data = bytearray(b"\n".join(lines))
        elif kind == 5:
            piece = bytes(data[at : at + dice.randint(1, 200)])
            data[at:at] = piece * dice.choice((1, 3, 300))
        elif kind == 6:
            data = data[:at]
        else:
            prefix = dice.choice(JUNK)
            data = bytearray(b"".join(prefix + line + b"\n" for line in bytes(data).split(b"\n")))
    return bytes(data[: 1 << 20])


def check(raw: bytes) -> str | None:
    """What is wrong with reading these bytes, or None."""
    began = time.process_time()
    try:
        recording = read([("fuzz", io.BytesIO(raw))])
        msgspec.json.encode(recording)
    except EnginectlError:
        return None
    except BaseException:
        return traceback.format_exc()
    seconds = time.process_time() - began
    if seconds > 1 + SLOW_SECONDS_PER_MEGABYTE * len(raw) / 1e6:
        return f"{seconds:.1f} s for {len(raw)} bytes"
    names = [p.title for p in recording.processes]
    for snapshot in recording.snapshots:
        for process in snapshot.processes:
            for thread in process.threads:
                names += [
                    thread.name or "",
                    *(f.function for f in thread.frames or ()),
                    *(f.file for f in thread.frames or ()),
                ]
    bad = [name for name in names if any(ord(c) < 32 or 127 <= ord(c) < 160 for c in name)]
    return f"control characters in {bad[0]!r}" if bad else None


def main() -> int:
    """Run for the given time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    seeds = [p.read_bytes() for p in (options.files or sorted(FIXTURES.iterdir()))]
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    dice, end, rounds = random.Random(seed), time.monotonic() + options.seconds, 0
    while time.monotonic() < end:
        raw = mutate(dice.choice(seeds), seeds, dice)
        wrong = check(raw)
        rounds += 1
        if wrong is not None:
            with tempfile.NamedTemporaryFile(prefix="fuzz-read-", suffix=".bin", delete=False) as kept:
                kept.write(raw)
            print(f"seed {seed}, round {rounds}: {kept.name}\n{wrong}")
            return 1
    print(f"{rounds} inputs, seed {seed}: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
