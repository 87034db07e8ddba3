"""Processes that faults need beside the engine: `python -m engine_core.fault_helpers KIND PARENT_PID ...`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engine_core.process import die_with_parent

_WEIGHTS_BYTES_PER_SECOND = 120_000
_FEEDS_PER_SECOND = 10


def burn(core: str) -> None:
    """Keep one core busy for ever."""
    os.sched_setaffinity(0, {int(core)})
    number = 1
    while True:
        number = (number * 1103515245 + 12345) % (1 << 31)


def hold_lock(path: str, marker: str) -> None:
    """Take a file lock and keep it."""
    from filelock import FileLock

    with FileLock(path):
        Path(marker).touch()
        while True:
            signal.pause()


def feed_weights(path: str, header: str, marker: str) -> None:
    """Write a safetensors file of small numbers into a named pipe, as slowly as a congested network disk."""
    encoded = header.encode()
    total = max(entry["data_offsets"][1] for entry in json.loads(header).values())
    with open(path, "wb", buffering=0) as pipe:
        pipe.write(len(encoded).to_bytes(8, "little") + encoded)
        piece = bytes.fromhex("0ad7233c") * (_WEIGHTS_BYTES_PER_SECOND // _FEEDS_PER_SECOND // 4)
        for sent in range(0, total, len(piece)):
            try:
                pipe.write(piece[: total - sent])
            except BrokenPipeError:  # the engine has ended
                return
            if sent:
                Path(marker).touch()
            time.sleep(1 / _FEEDS_PER_SECOND)


def fill(path: str) -> None:
    """Take whatever room the file system of `path` has, for ever, as a leaking neighbour does."""
    with open(path, "wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(1 << 16))
            except OSError:
                time.sleep(0.05)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]), signal.SIGKILL)
    helpers: dict[str, Callable[..., None]] = {
        "burn": burn,
        "hold-lock": hold_lock,
        "feed-weights": feed_weights,
        "fill": fill,
    }
    helpers[sys.argv[1]](*sys.argv[3:])
