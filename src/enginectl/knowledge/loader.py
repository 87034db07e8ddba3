"""Reads the packaged knowledge files, and those of `--knowledge DIR`, into one `Knowledge`."""

from __future__ import annotations

import functools
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeVar

import msgspec
import tomli

from enginectl.errors import UsageError
from enginectl.knowledge.schema import Advice, AdviceFile, Engine, Rule, WaitFile, WaitPoint

GENERIC = ("python", "torch")
"""Wait files that hold for every engine."""

_Row = TypeVar("_Row")


class Knowledge(msgspec.Struct, frozen=True, kw_only=True):
    """All rows. `waits` and `advice` map a file's stem (`vllm`, `python`) to its rows."""

    engines: dict[str, Engine]
    waits: dict[str, tuple[WaitPoint, ...]]
    rules: dict[str, Rule]
    advice: dict[str, tuple[Advice, ...]]

    def wait(self, wait_id: str) -> WaitPoint | None:
        """The wait point of this id, or None."""
        stem = wait_id.partition(".")[0]
        homes = (self.waits[stem],) if stem in self.waits else tuple(self.waits.values())
        return next((row for rows in homes for row in rows if row.id == wait_id), None)


def _decode(path: Traversable | Path, kind: type[_Row]) -> _Row:
    """One file as `kind`; UsageError names the file and the key that is wrong."""
    try:
        return msgspec.convert(tomli.loads(path.read_text(encoding="utf-8")), kind)
    except (tomli.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def _files(root: Traversable | Path, folder: str) -> list[Traversable | Path]:
    place = root / folder
    if not place.is_dir():
        return []
    return sorted((f for f in place.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)


@functools.lru_cache(maxsize=4)
def load(extra: str = "") -> Knowledge:
    """The packaged knowledge, with rows of the folder `extra` put before them.

    Errors: UsageError when a file cannot be decoded or `extra` is no folder.  Source: knowledge/*.toml.
    """
    roots: list[Traversable | Path] = [resources.files("enginectl.knowledge")]
    if extra:
        if not Path(extra).is_dir():
            raise UsageError(f"--knowledge {extra}: not a folder")
        roots.append(Path(extra))
    engines: dict[str, Engine] = {}
    waits: dict[str, tuple[WaitPoint, ...]] = {}
    rules: dict[str, Rule] = {}
    advice: dict[str, tuple[Advice, ...]] = {}
    for root in roots:
        for file in _files(root, "engines"):
            engine = _decode(file, Engine)
            engines[engine.engine] = engine
        for file in _files(root, "waits"):
            stem = file.name.removesuffix(".toml")
            waits[stem] = _decode(file, WaitFile).wait + waits.get(stem, ())
        for file in _files(root, "rules"):
            rule = _decode(file, Rule)
            rules[rule.id] = rule
        for file in _files(root, "advice"):
            stem = file.name.removesuffix(".toml")
            advice[stem] = _decode(file, AdviceFile).advice + advice.get(stem, ())
    return Knowledge(engines=engines, waits=waits, rules=rules, advice=advice)
