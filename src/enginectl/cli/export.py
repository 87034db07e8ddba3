"""`doctor --export FORMAT FILE`: the same recording for other viewers."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enginectl.knowledge.loader import Knowledge
    from enginectl.model.observed import Recording


class ExportFormat(enum.StrEnum):
    """Forms that other viewers read."""

    PERFETTO = "perfetto"
    SPEEDSCOPE = "speedscope"
    FOLDED = "folded"


def export(recording: Recording, knowledge: Knowledge, form: ExportFormat, file: str) -> None:
    """Write one export. Errors: UsageError when the file cannot be written."""
    from enginectl.classify.timeline import timeline_of
    from enginectl.cli import pipeline

    if form is ExportFormat.FOLDED:
        from enginectl.render.folded import render_folded

        return pipeline.write_bytes(render_folded(recording).encode("utf-8", "replace"), file)
    timeline = timeline_of(recording, knowledge)
    if form is ExportFormat.SPEEDSCOPE:
        from enginectl.render.speedscope import render_speedscope

        return pipeline.write_bytes(render_speedscope(recording, timeline).encode(), file)
    from enginectl.render.perfetto import render_perfetto

    return pipeline.write_bytes(render_perfetto(timeline), file)
