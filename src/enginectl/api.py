"""The library face: observe or read, diagnose, render. Everything else is private and may change.

from enginectl import api
recording = api.observe(4242)
print(api.render(api.diagnose(recording)))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from enginectl.model.diagnosed import Diagnosis
from enginectl.model.observed import Recording, StatedFacts

__all__ = ["Diagnosis", "Recording", "diagnose", "observe", "read", "render"]


def observe(pid: int, *, duration_seconds: float = 2.0, samples: int = 5, url: str = "") -> Recording:
    """Observe the engine tree that `pid` belongs to.

    Errors: NoSuchProcess, NotAnEngine.  Source: py-spy, /proc, NVML, the engine's /metrics.
    """
    from enginectl.classify.identify import ranks_of
    from enginectl.cli import pipeline
    from enginectl.observe.record import Observation, Settings

    knowledge = pipeline.knowledge_of("")
    settings = Settings(duration_seconds=duration_seconds, samples=samples, url=url)
    seen = Observation(pid, settings, pipeline.Recogniser(knowledge), pipeline.packages_of(knowledge), ranks_of)
    seen.extend(duration_seconds, samples)
    return seen.recording()


def read(sources: Sequence[tuple[str, BinaryIO]], *, facts: StatedFacts | None = None) -> Recording:
    """Saved dumps, in time order, as a recording.

    Shape: n (name, open binary file) -> 1 recording. Errors: UnreadableInput.
    """
    from enginectl.read import read as read_sources

    return read_sources(sources, facts=facts)


def diagnose(recording: Recording, *, knowledge_folder: str = "") -> Diagnosis:
    """The diagnosis of one recording: pure, the same everywhere. Errors: UsageError for a wrong folder."""
    from enginectl.cli import pipeline

    return pipeline.diagnosed(recording, pipeline.knowledge_of(knowledge_folder))


def render(diagnosis: Diagnosis, *, form: str = "text", width: int = 80) -> str:
    """The report as `text`, `json` or `md`. Errors: ValueError for another form."""
    from enginectl.render.json import render_json
    from enginectl.render.markdown import render_markdown
    from enginectl.render.text import render_text

    if form == "text":
        return render_text(diagnosis, width=width)
    if form == "json":
        return render_json(diagnosis)
    if form == "md":
        return render_markdown(diagnosis)
    raise ValueError(f"no form is called {form!r}")
