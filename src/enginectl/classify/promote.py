"""Threads that neither their name nor their outer frames tell: who drives the model is seen by where it stands."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginectl.model.classified import ThreadView

WORK_KINDS = frozenset(
    {"forward", "sample", "device-sync", "launch", "collective", "compile", "weights", "graph-capture", "warm-up",
     "profile", "prepare-inputs", "file-lock", "schedule", "kv-allocate", "spin"}
)  # fmt: skip
"""Places where only a thread that drives the model stands, whatever its name."""


def promote(
    views: Sequence[ThreadView], role: str | None, kinds: dict[str, str | None], whole: bool
) -> list[ThreadView]:
    """Give the thread that drives the model its role when neither its name nor its outer frames told it.

    Shape: `kinds` maps wait ids to their kind; `whole` says that the stacks are complete (read live), so that a
    missing loop really is missing and nobody takes its place.
    """
    loops = [v for v in views if v.role in ("engine-loop", "worker-loop")]
    result = list(views)
    for index, view in enumerate(views):
        at_work = view.wait_id is not None and kinds.get(view.wait_id) in WORK_KINDS and view.wait_class != "idle"
        if view.role in ("helper", "monitor") and at_work and loops:
            result[index] = msgspec.structs.replace(view, role="worker-loop")
    if loops or whole or role in ("frontend", "coordinator", "detokenizer", "tokenizer"):
        return result
    open_ = [
        (v.wait_id is not None and kinds.get(v.wait_id) in WORK_KINDS, v.name == "MainThread" or v.tid == v.pid, i)
        for i, v in enumerate(views)
        if v.frames
        and v.role not in ("ipc", "ipc-in", "ipc-out", "tokenizer-pool", "output", "frontend-loop")
        and v.wait_class not in ("idle", "timer")
    ]
    if open_ and (len(views) == 1 or any(max(open_)[:2])):
        index = max(open_)[2]
        loop = "worker-loop" if role == "worker" else "engine-loop"
        result[index] = msgspec.structs.replace(views[index], role=loop)
    return result
