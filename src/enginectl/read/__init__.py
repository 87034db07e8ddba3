"""Saved evidence in, a Recording out: the twin of live observation.

One format a file. `lexer` says what a line is, `assemble` puts lines together, `merge` puts files together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from enginectl.errors import UsageError
from enginectl.model.observed import Recording, StatedFacts
from enginectl.read.facts import read_facts
from enginectl.read.merge import to_recording
from enginectl.read.source import read_source

__all__ = ["read", "read_facts"]


def read(
    sources: Sequence[tuple[str, BinaryIO]], *, facts: StatedFacts | None = None, same_process: bool = False
) -> Recording:
    """Saved dumps, logs, issue texts and recordings as one Recording; what the text does not tell stays None.

    Shape: n (name, open binary file) in time order -> 1 recording. The same pid again is a later snapshot, other pids
    are peers in the same snapshot. Text without any pid is a peer with a small negative pid of its own; with
    `same_process`, it is the next sample of one process. Threads and frames are innermost first.
    Errors: UnreadableInput for a file that cannot be read, decompressed or, as a recording, decoded; UsageError when
    there is no source. Bad content raises nothing: `understood` says how much of it was understood.
    """
    if not sources:
        raise UsageError("there is no file to read")
    return to_recording([read_source(name, stream) for name, stream in sources], facts=facts, same_process=same_process)
