"""Stacks against wait points: suffixes, qualified names, gaps, leaves, and which row wins."""

from __future__ import annotations

import pytest

from enginectl.classify.match import FramePattern, Matcher, last_name
from enginectl.knowledge.schema import WaitPoint
from enginectl.model.observed import Frame


def stack(*frames: str) -> tuple[Frame, ...]:
    """`file:function` texts, innermost first, as frames."""
    return tuple(Frame(function=f.rpartition(":")[2], file=f.rpartition(":")[0]) for f in frames)


def row(wait_id: str, *frames: str, **more: object) -> WaitPoint:
    return WaitPoint(id=wait_id, wait_class="cpu", meaning="Running.", frames=frames, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("qualified", "expected"),
    [
        ("step", "step"),
        ("EngineCore.step", "step"),
        ("MultiprocExecutor.collective_rpc.<locals>.get_response", "get_response"),
        ("<module>", "<module>"),
        ("A.run.<locals>.<lambda>", "<lambda>"),
        ("at::native::linear(at::Tensor const&)", "linear"),
    ],
)
def test_last_name(qualified: str, expected: str) -> None:
    assert last_name(qualified) == expected


@pytest.mark.parametrize(
    ("pattern", "function", "file", "fits"),
    [
        ("queue.py:get", "get", "/usr/lib/python3.11/queue.py", True),
        ("queue.py:get", "get", "my_queue.py", False),
        ("v1/engine/core.py:step", "EngineCore.step", "/opt/vllm/v1/engine/core.py", True),
        ("v1/engine/core.py:step", "step", "core.py", True),
        ("v1/engine/core.py:step", "step", "/elsewhere/core.py", False),
        ("torch/*:synchronize", "Event.synchronize", "/x/torch/cuda/streams.py", True),
        ("libcuda.so*:cuEvent*", "cuEventSynchronize", "libcuda.so.1", True),
        ("*:sched_yield", "sched_yield", "libc.so.6", True),
        ("a.py|b.py:f|g", "g", "b.py", True),
    ],
)
def test_frame_pattern(pattern: str, function: str, file: str, fits: bool) -> None:
    assert FramePattern(pattern).fits(last_name(function), function, file) is fits


def test_pattern_without_a_function_is_refused() -> None:
    with pytest.raises(ValueError, match="not PATH:FUNCTION"):
        FramePattern("queue.py")


def test_outer_frames_decide_the_meaning_of_the_same_leaf() -> None:
    matcher = Matcher(
        [
            row("engine.waits", "shm.py:dequeue", "executor.py:get_response"),
            row("worker.idle", "shm.py:dequeue", "executor.py:worker_busy_loop"),
        ]
    )
    engine = matcher.match(stack("shm.py:acquire_read", "shm.py:dequeue", "executor.py:get_response", "core.py:step"))
    worker = matcher.match(stack("shm.py:acquire_read", "shm.py:dequeue", "executor.py:worker_busy_loop"))
    assert engine and engine.row.id == "engine.waits" and engine.positions == (1, 2)
    assert worker and worker.row.id == "worker.idle"


def test_more_frames_win_then_nearness_to_the_leaf_then_priority_overrides_both() -> None:
    deep = stack("kv.py:allocate", "scheduler.py:schedule", "core.py:step")
    outer, inner = row("outer", "scheduler.py:schedule"), row("inner", "kv.py:allocate")
    both = row("both", "scheduler.py:schedule", "core.py:step")
    assert Matcher([outer, inner]).match(deep).row.id == "inner"  # type: ignore[union-attr]
    assert Matcher([outer, inner, both]).match(deep).row.id == "both"  # type: ignore[union-attr]
    urgent = row("urgent", "core.py:step", priority=1)
    assert Matcher([outer, inner, both, urgent]).match(deep).row.id == "urgent"  # type: ignore[union-attr]


def test_leaf_not_frames_process_role_and_os_state() -> None:
    leaf = Matcher([row("leaf", "^runners.py:run")])
    assert leaf.match(stack("runners.py:run", "main.py:main"))
    assert leaf.match(stack("x.py:inner", "runners.py:run")) is None
    without = Matcher([row("w", "a.py:f", not_frames=("b.py:g",))])
    assert without.match(stack("a.py:f"))
    assert without.match(stack("a.py:f", "b.py:g")) is None
    asleep = Matcher([row("idle", "a.py:f", os_states="S D"), row("busy", "a.py:f", os_states="R")])
    assert asleep.match(stack("a.py:f"), os_state="S").row.id == "idle"  # type: ignore[union-attr]
    assert asleep.match(stack("a.py:f"), os_state="R").row.id == "busy"  # type: ignore[union-attr]
    assert asleep.match(stack("a.py:f")) is None
    only = Matcher([row("w", "a.py:f", process_role="worker")])
    assert only.match(stack("a.py:f"), role="engine-core") is None
    assert only.match(stack("a.py:f")) is not None


def test_rivals_names_a_tie() -> None:
    matcher = Matcher([row("one", "a.py:f"), row("two", "a.py:f|g")])
    assert matcher.rivals(stack("a.py:f")) == ["one", "two"]


def test_lines_never_matter() -> None:
    matcher = Matcher([row("w", "a.py:f")])
    assert matcher.match((Frame(function="f", file="a.py", line=1),)) == matcher.match(
        (Frame(function="f", file="a.py", line=99),)
    )
