"""What arrives at the view: frozen moments of one engine, and the seam through which they come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from enginectl.model.diagnosed import Diagnosis
from enginectl.model.observed import ProcessFact

Node = tuple[int, int]
"""A thread: (pid, tid)."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps the view from seeing everything, and the one step that helps."""

    text: str
    fix: str = ""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often stacks are read, and what that costs.

    `own_cpu_ratio` is cores used by the view and its stack reader; None while not yet measured.
    """

    stack_seconds: float
    own_cpu_ratio: float | None = None
    pause_seconds: float = 0.0


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One engine at one instant.

    `at` counts seconds on the feed's own clock. `classes` holds the wait class of every thread of the stacks read
    now, None when none were read. `cpu` (cores) and `runqueue` (share of time) are rates since the moment before.
    `diagnosis` is the newest one, over the last seconds; None before the first. `gone` says that the engine ended.
    """

    at: float
    taken_at: str = ""
    diagnosis: Diagnosis | None = None
    processes: tuple[ProcessFact, ...] = ()
    classes: dict[Node, str] | None = None
    cpu: dict[Node, float] = {}
    runqueue: dict[Node, float] = {}
    os_states: dict[int, str] = {}
    model: str = ""
    gone: bool = False
    trouble: Trouble | None = None
    pace: Pace | None = None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One engine of the picker."""

    pid: int
    engine: str
    title: str
    processes: int = 1
    uptime_seconds: float | None = None


class NativeSample(msgspec.Struct, frozen=True, kw_only=True):
    """One look with native frames: lines per thread id, innermost first; `trouble` says why there are none."""

    threads: dict[int, tuple[str, ...]] = {}
    trouble: str = ""
    pause_seconds: float = 0.0


Publish = Callable[[Moment], None]


class Feed(Protocol):
    """Where moments come from: a live engine, or a recording."""

    live: bool

    def run(self, publish: Publish, stop: threading.Event) -> None:
        """Publish moments until `stop` is set or there are no more. Runs in a thread of its own."""

    def native(self, pid: int) -> NativeSample:
        """Take one sample with native frames. Errors: none, see `NativeSample.trouble`."""


@dataclass(frozen=True)
class Sources:
    """What the view is given. `record` saves what was seen and says where; None when that is not offered."""

    choices: Callable[[], tuple[Choice, ...]]
    attach: Callable[[int], Feed]
    page: Callable[[str], str]
    record: Callable[[Feed], str] | None = None
