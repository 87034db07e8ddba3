"""Writes a recording as it grows: gzip JSON, complete up to the newest snapshot at every moment.

The facts that are known from the start stand in front of the snapshots, and every snapshot is pushed out to the
kernel whole. What is left of an interrupted file is therefore readable to its last snapshot (`read/recording.py`).
"""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from pathlib import Path
from types import TracebackType

import msgspec

from enginectl.errors import UsageError
from enginectl.model.observed import Recording, Snapshot

_GZIP = 31
STDOUT = "-"


class Writer:
    """One recording being written; a context manager. `size_bytes` is what the file takes, `count` its snapshots."""

    def __init__(self, path: str | Path, head: Recording, *, force: bool = False) -> None:
        """Create the file with mode 0600.

        Shape: `head` is a recording of which everything but the snapshots and the wall time is written now.
        Errors: UsageError when the file exists (without `force`) or cannot be created.
        """
        self.path = Path(path)
        self.count = 0
        self.size_bytes = 0
        self._fd = os.dup(1) if str(path) == STDOUT else _create(self.path, force)
        self._machine = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
        known = msgspec.to_builtins(head)
        known = {key: known[key] for key in known if key not in ("schema_version", "snapshots", "wall_seconds")}
        body = msgspec.json.encode({"schema_version": head.schema_version, **known})
        self._put(body[:-1] + b',"snapshots":[')

    def _put(self, data: bytes, *, last: bool = False) -> None:
        packed = self._machine.compress(data)
        packed += self._machine.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)
        view = memoryview(packed)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._close()
            raise UsageError(f"cannot write {self.path}: {error.strerror}; it holds {self.count} snapshots") from error
        self.size_bytes += len(packed)

    def add(self, snapshot: Snapshot) -> None:
        """Append one snapshot. Errors: UsageError when the disk is full or the file cannot be written."""
        self._put((b",\n" if self.count else b"\n") + msgspec.json.encode(snapshot))
        self.count += 1

    def finish(self, wall_seconds: float = 0.0) -> None:
        """Close the file as a complete recording; does nothing the second time."""
        if self._fd >= 0:
            self._put(b'\n],"wall_seconds":%.3f}\n' % wall_seconds, last=True)
            self._close()

    def discard(self) -> None:
        """Close and remove a file that holds no snapshot; any other is finished."""
        if self.count or str(self.path) == STDOUT:
            return self.finish()
        self._close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd >= 0:
            self.discard()


def _replaceable(path: Path) -> bool:
    """Whether --force may replace it: never a device, a pipe or a link to one. As root that would break the host."""
    if path.parent == Path("/dev"):
        return False
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return path.is_symlink()


def _create(path: Path, force: bool) -> int:
    """A new file of this name, for its owner only. A link at that place is never followed."""
    try:
        if force and _replaceable(path):
            path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UsageError(f"cannot replace {path}: {error.strerror}") from error
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        if not _replaceable(path):
            raise UsageError(f"{path} is no regular file and is left as it is", fix="name another file") from None
        raise UsageError(f"{path} exists already", fix="--force replaces it") from None
    except OSError as error:
        raise UsageError(f"cannot create {path}: {error.strerror}") from error
