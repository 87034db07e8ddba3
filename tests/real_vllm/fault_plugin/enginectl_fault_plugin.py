"""Faults for a real vLLM server: each wraps one *inner* function, so that the outer frames stay vLLM's own.

A fault does nothing until a file of its name appears in the folder that `ENGINECTL_FAULTS` names; it ends when
the file goes. The file holds JSON: `seconds` (of CPU per call), `rank` (only this worker), `times` (only so many
calls). One healthy server can so play many faults in turn.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

FOLDER = os.environ.get("ENGINECTL_FAULTS", "")


class Fault:
    """The state of one armed fault as this process sees it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = os.path.join(FOLDER, name)
        self.read_at = 0
        self.left: float = 0
        self.fresh = False
        self.options: dict[str, Any] = {}

    def armed(self) -> bool:
        """Whether the file is there, meant for this rank, and its calls are not used up. Counts one call."""
        try:
            changed = os.stat(self.path).st_mtime_ns
        except OSError:
            return False
        if changed != self.read_at:
            try:
                with open(self.path) as file:
                    self.options = json.load(file)
            except (OSError, ValueError):
                return False
            self.read_at, self.left = changed, self.options.get("times", float("inf"))
            self.fresh = True
        if self.options.get("rank", rank()) != rank() or self.left <= 0:
            return False
        self.left -= 1
        if self.fresh:
            # tells the test that the fault is in force
            open(self.path + ".used", "w").close()
            self.fresh = False
        return True

    def spend(self) -> None:
        """Burns the fault's seconds of CPU in Python code, or until the fault is taken back."""
        end = time.thread_time() + self.options.get("seconds", 0.01)
        while time.thread_time() < end and os.path.exists(self.path):
            sum(range(200))

    def spend_in_c(self) -> None:
        """The same in C code that releases the GIL."""
        end = time.thread_time() + self.options.get("seconds", 0.01)
        while time.thread_time() < end and os.path.exists(self.path):
            hashlib.pbkdf2_hmac("sha256", b"key", b"salt", 100_000)

    def sleep(self) -> None:
        """Waits until the fault is taken back."""
        while os.path.exists(self.path):
            time.sleep(0.05)


def rank() -> int:
    """The number in `VllmWorker-1`, else 0."""
    tail = multiprocessing.current_process().name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else 0


def before(act: Callable[[Fault], Any]) -> Callable[[Fault, Callable[..., Any]], Callable[..., Any]]:
    """A wrapper that acts before the real call."""

    def wrap(fault: Fault, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if fault.armed():
                act(fault)
            return real(*args, **kwargs)

        return wrapper

    return wrap


def instead(value: Any) -> Callable[[Fault, Callable[..., Any]], Callable[..., Any]]:
    """A wrapper that returns `value` and leaves the real call out."""

    def wrap(fault: Fault, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return value if fault.armed() else real(*args, **kwargs)

        return wrapper

    return wrap


MANAGER = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.get_num_blocks_to_allocate"
ATTENTION = "vllm.v1.attention.backends.cpu_attn:CPUAttentionBackendImpl.forward"
ALL_REDUCE = "vllm.distributed.device_communicators.cpu_communicator:_CPUSHMDistributed.all_reduce"

FAULTS: dict[str, tuple[str, str, Callable[..., Any]]] = {
    # fault: (process, function, wrapper)
    "slow-block-lookup": ("EngineCore", MANAGER, before(Fault.spend)),
    "admission-refused": ("EngineCore", MANAGER, instead(1 << 30)),
    "request-dropped": ("EngineCore", "vllm.v1.core.sched.scheduler:Scheduler.add_request", instead(None)),
    "slow-grammar": ("EngineCore", "xgrammar:GrammarCompiler.compile_json_schema", before(Fault.spend_in_c)),
    "slow-detokenizer": (
        "front end",
        "vllm.v1.engine.detokenizer:FastIncrementalDetokenizer._protected_step",
        before(Fault.spend),
    ),
    "slow-forward": ("VllmWorker", ATTENTION, before(Fault.spend)),
    "stuck-forward": ("VllmWorker", ATTENTION, before(Fault.sleep)),
    "skipped-collective": ("VllmWorker", ALL_REDUCE, instead(None)),
}


def _plays(process: str) -> bool:
    """Whether this process is of that kind; without any child process it is all of them."""
    name = multiprocessing.current_process().name
    if process == "front end":
        return name == "MainProcess" or name.startswith("ApiServer")
    in_process = os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0" and name == "MainProcess"
    return name.startswith(process) or (in_process and process == "EngineCore")


def _poll_without_yielding() -> None:
    """vLLM's own branch for older Pythons: a zero sleep between polls in place of `sched_yield`.

    Linux 6.18 lets a task that yields forfeit its turn. With more pollers than cores every other task of the host,
    the observer's start included, then waits for minutes.
    """
    importlib.import_module("vllm.distributed.utils").USE_SCHED_YIELD = False  # type: ignore[attr-defined]


def register() -> None:
    """The entry point: wraps what belongs to this process. Without the folder it does nothing."""
    if not FOLDER:
        return
    _poll_without_yielding()
    for name, (process, target, wrap) in FAULTS.items():
        if not _plays(process):
            continue
        module, _, path = target.partition(":")
        owner, _, function = path.rpartition(".")
        holder: Any = functools.reduce(getattr, owner.split("."), importlib.import_module(module))
        setattr(holder, function, wrap(Fault(name), getattr(holder, function)))
