"""A stack and the knowledge rows in, the wait point that explains it best out."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from fnmatch import translate

import msgspec

from enginectl.knowledge.schema import WaitPoint
from enginectl.model.observed import Frame

Key = tuple[str, str]
"""A frame without its line: (function, file). Matching never looks at lines."""


class Match(msgspec.Struct, frozen=True):
    """The chosen row and the positions (0 = innermost) of the frames that its patterns matched."""

    row: WaitPoint
    positions: tuple[int, ...]


def last_name(function: str) -> str:
    """The last component of a qualified name: `A.run.<locals>.step` gives `step`; native templates are cut."""
    if "::" in function or "(" in function:
        function = function.split("(", 1)[0].rsplit("::", 1)[-1]
    return function.rsplit(".", 1)[-1] if not function.startswith("<") else function


def _component_glob(text: str) -> re.Pattern[str]:
    return re.compile(r"(?:^|.*/)" + translate(text))


class FramePattern:
    """One compiled `PATH:FUNCTION`. See knowledge/schema.py for the syntax."""

    __slots__ = (
        "any_file", "any_function", "file_globs", "file_suffixes", "function_globs", "functions", "leaf", "length",
    )  # fmt: skip

    def __init__(self, text: str) -> None:
        self.leaf = text.startswith("^")
        path, _, function = text.removeprefix("^").rpartition(":")
        if not path or not function:
            raise ValueError(f"frame pattern {text!r} is not PATH:FUNCTION")
        self.any_file = path == "*"
        paths = path.split("|")
        self.file_suffixes = tuple(p for p in paths if "*" not in p)
        self.file_globs = tuple(_component_glob(p) for p in paths if "*" in p and p != "*")
        names = function.split("|")
        self.functions = frozenset(n for n in names if "*" not in n)
        self.function_globs = tuple(re.compile(translate(n)) for n in names if "*" in n)
        self.any_function = "*" in names
        self.length = 0 if self.any_file else max(len(p.strip("*")) for p in paths)

    def fits(self, name: str, function: str, file: str) -> bool:
        """Whether a frame fits. `name` is `last_name(function)`; native names are also compared whole.

        A frame of a hand-made dump may lack its path or most of it: then the function must be named in full.
        """
        named = name in self.functions or function in self.functions
        if not named:
            if not any(g.match(name) or g.match(function) for g in self.function_globs):
                return False
            named = not self.any_function
        return self.any_file or self._file_fits(file, named)

    def _file_fits(self, file: str, named: bool) -> bool:
        if not file:
            return named
        for suffix in self.file_suffixes:
            if file == suffix or file.endswith("/" + suffix):
                return True
            # a short path as printed by stack readers: `core.py` for `v1/engine/core.py`
            if named and not file.startswith("/") and len(file) < len(suffix) and suffix.endswith("/" + file):
                return True
        return any(glob.match(file) for glob in self.file_globs)


class _Compiled:
    """One row ready to match."""

    __slots__ = ("length", "no", "patterns", "row")

    def __init__(self, row: WaitPoint) -> None:
        self.row = row
        self.patterns = tuple(FramePattern(text) for text in row.frames)
        self.no = tuple(FramePattern(text) for text in row.not_frames)
        self.length = sum(p.length for p in self.patterns)

    def positions(self, stack: Sequence[tuple[str, str, str]]) -> tuple[int, ...] | None:
        found: list[int] = []
        index = 0
        for pattern in self.patterns:
            while index < len(stack) and not pattern.fits(*stack[index]):
                if pattern.leaf:
                    return None
                index += 1
            if index == len(stack) or (pattern.leaf and index != 0):
                return None
            found.append(index)
            index += 1
        if any(p.fits(*frame) for p in self.no for frame in (stack[:1] if p.leaf else stack)):
            return None
        return tuple(found)


class Matcher:
    """All rows of some wait files, compiled once. `match` remembers stacks it has seen."""

    def __init__(self, rows: Iterable[WaitPoint]) -> None:
        self._always: list[_Compiled] = []
        self._by_function: dict[str, list[_Compiled]] = {}
        for row in rows:
            compiled = _Compiled(row)
            key = self._index_pattern(compiled)
            if key is None:
                self._always.append(compiled)
            else:
                for function in key.functions:
                    self._by_function.setdefault(function, []).append(compiled)
        self._remembered = functools.lru_cache(maxsize=65536)(self._match)

    @staticmethod
    def _index_pattern(compiled: _Compiled) -> FramePattern | None:
        """A pattern without globs to index the row by: the fewer functions the better."""
        plain = [p for p in compiled.patterns if not p.function_globs]
        return min(plain, key=lambda p: len(p.functions), default=None)

    def match(self, frames: Sequence[Frame], *, role: str | None = None, os_state: str | None = None) -> Match | None:
        """The best row for this stack, or None.

        Shape: frames innermost first; `role` is the process role when known, `os_state` the thread's state.
        """
        key = tuple((frame.function, frame.file) for frame in frames)
        return self._remembered(key, role, os_state or "")

    def _match(self, key: tuple[Key, ...], role: str | None, os_state: str) -> Match | None:
        stack = [(last_name(function), function, file) for function, file in key]
        names = {part for name, function, _ in stack for part in (name, function)}
        rows = list(self._always)
        seen: set[int] = set()
        for name in names:
            for compiled in self._by_function.get(name, ()):
                if id(compiled) not in seen:
                    seen.add(id(compiled))
                    rows.append(compiled)
        best: tuple[tuple[int, int, int, int], Match] | None = None
        for compiled in rows:
            row = compiled.row
            if role and row.process_role and role != row.process_role:
                continue
            if row.os_states and os_state not in row.os_states.split():
                continue
            positions = compiled.positions(stack)
            if positions is None:
                continue
            score = (row.priority, len(positions), -positions[0], compiled.length)
            if best is None or score > best[0]:
                best = (score, Match(row, positions))
        return best[1] if best else None

    def rivals(self, frames: Sequence[Frame], *, role: str | None = None, os_state: str | None = None) -> list[str]:
        """Ids of all rows that share the best score: more than one is a tie, which the tests forbid."""
        stack = [(last_name(f.function), f.function, f.file) for f in frames]
        scored: list[tuple[tuple[int, int, int, int], str]] = []
        for compiled in {id(c): c for rows in (self._always, *self._by_function.values()) for c in rows}.values():
            row = compiled.row
            positions = compiled.positions(stack)
            wrong_role = role and row.process_role and role != row.process_role
            if positions is None or wrong_role or (row.os_states and (os_state or "") not in row.os_states.split()):
                continue
            scored.append(((row.priority, len(positions), -positions[0], compiled.length), row.id))
        top = max(scored, default=None)
        return sorted(i for score, i in scored if top and score == top[0])
