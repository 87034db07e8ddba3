"""The blame chain as a drawing: one box per step, arrows downward, and one back when it is a cycle."""

from __future__ import annotations

import msgspec

from enginectl.model.diagnosed import Diagnosis
from enginectl.render import words
from enginectl.render.chain import ChainStep, view_chain
from enginectl.render.lines import wrap

WIDTH = 760
BOX_X = 8
BOX_WIDTH = 640
_LINE = 18
_GAP = 46
_CHARACTERS = 84


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """One step: its title, the lines below, the mark in its corner, and what the arrow below it says."""

    y: float
    height: float
    title: str
    lines: tuple[str, ...]
    mark: str
    is_target: bool
    arrow: str


class ChainDrawing(msgspec.Struct, frozen=True, kw_only=True):
    """Boxes from top to bottom; `back` is (from y, to y) of the arrow that closes a cycle, None without one."""

    width: float
    height: float
    x: float
    box_width: float
    boxes: tuple[Box, ...]
    back: tuple[float, float] | None


def draw_chain(diagnosis: Diagnosis) -> ChainDrawing | None:
    """Lay the chain out. Shape: n links -> n boxes; None without a chain. Errors: none."""
    view = view_chain(diagnosis)
    boxes: list[Box] = []
    y = 4.0
    for index, step in enumerate(view.steps):
        box = _box(step, y, last=index == len(view.steps) - 1)
        boxes.append(box)
        y += box.height + _GAP
    if not boxes:
        return None
    back = None
    if view.back_to is not None and view.back_to < len(boxes):
        first, last = boxes[view.back_to], boxes[-1]
        back = (last.y + last.height / 2, first.y + first.height / 2)
    height = y - _GAP + 8
    return ChainDrawing(width=WIDTH, height=height, x=BOX_X, box_width=BOX_WIDTH, boxes=tuple(boxes), back=back)


def _box(step: ChainStep, y: float, *, last: bool) -> Box:
    link = step.link
    lines = wrap(words.clean(link.meaning), _CHARACTERS)
    if not link.meaning and (last or not link.waits_for):
        lines = [words.wait_class(link.wait_class)]
    if link.wait_point and link.wait_point != "unknown":
        lines += wrap(f"at {words.clean(link.wait_point)}", _CHARACTERS)
    told = f"waits for {words.awaited(link.waits_for)}" if link.waits_for else ""
    told += f", through {words.clean(link.through)}" if told and link.through else ""
    if last and told:
        lines += wrap(told, _CHARACTERS)
    return Box(
        y=y, height=32 + _LINE * len(lines), title=step.label, lines=tuple(lines), is_target=step.is_target,
        mark=step.mark.removeprefix("<- "), arrow="" if last else told,
    )  # fmt: skip
