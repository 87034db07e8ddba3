"""A process at one instant, while it is being read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from enginectl.model.observed import Frame, ThreadSample
from enginectl.read.naming import rank_tags, title_ranks
from enginectl.read.tokens import Row


@dataclass(slots=True)
class Draft:
    """One process at one instant, as far as read. `pid` None when the text carries none.

    `again` marks a later sample of the draft before it. `weak` drafts hold only tracebacks
    (with `interrupt`, of a Ctrl-C). `repeat`
    marks the instants of a profile after its first. `pthreads` maps pthread ids to the kernel's thread ids.
    """

    pid: int | None = None
    title: str = ""
    python: str | None = None
    tags: str = ""
    when: str = ""
    threads: list[ThreadSample] = field(default_factory=list)
    tids: dict[int, int] = field(default_factory=dict)
    pthreads: dict[int, int] = field(default_factory=dict)
    formats: set[str] = field(default_factory=set)
    again: bool = False
    mentioned: bool = False
    weak: bool = False
    interrupt: bool = False
    repeat: bool = False
    frames: int = 0
    rows: list[Row] = field(default_factory=list)
    stacks: dict[tuple[Frame, ...], float] = field(default_factory=dict)
    thread_stacks: dict[int, list[tuple[tuple[Frame, ...], float]]] = field(default_factory=dict)
    thread_names: dict[int, str | None] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether no stack was read for it."""
        return not (self.threads or self.rows or self.stacks or self.thread_stacks)

    @property
    def ranks(self) -> dict[str, int]:
        """Rank labels of the title, completed by those of the log head unless the two contradict each other."""
        own, head = title_ranks(self.title), rank_tags(self.tags)
        if any(own.get(key, value) != value for key, value in head.items()):
            return own or head
        return {**head, **own}


def cut_parent_chain(frames: list[Frame]) -> list[Frame]:
    """Innermost-first frames of a forked child without those of its parent (at and below `_launch`)."""
    launches = [i for i, f in enumerate(frames) if f.function.endswith("_launch") and f.file.endswith("popen_fork.py")]
    for launch in launches:
        inner = frames[:launch]
        if any(f.function.endswith("_bootstrap") and f.file.endswith("process.py") for f in inner):
            return inner
    return frames


def merged(native: Sequence[Frame], python: Sequence[Frame]) -> tuple[Frame, ...]:
    """A C stack and the Python stack of the same thread: the interpreter's own frames give way to the Python ones."""
    cut = next((i for i, f in enumerate(native) if f.function.startswith("_PyEval_")), len(native))
    return (*native[:cut], *python)
