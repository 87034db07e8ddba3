"""`py-spy dump --json`: an array of threads, several arrays in a row, a cut array up to its last whole thread."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from enginectl.model.observed import Frame, ThreadSample
from enginectl.read.draft import Draft, cut_parent_chain
from enginectl.read.naming import clean, split_title

_SPACE = " \t\r\n,]"
_DECODER = json.JSONDecoder()


def _int(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _text(value: Any) -> str:
    return clean(value, 4096) if isinstance(value, str) else ""


def _frame(row: Any) -> Frame | None:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return None
    file = _text(row.get("filename")) or _text(row.get("short_filename")) or _text(row.get("module"))
    line = _int(row.get("line"))
    native = not line and not file.endswith((".py", ".pyx")) and not file.startswith("<")
    return Frame(function=_text(row["name"]), file=file, line=line or None, native=native or _is_c(file))


def _is_c(file: str) -> bool:
    return file.endswith((".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".rs", ".so")) or ".so." in file


def objects(text: str) -> Iterator[tuple[Any, bool]]:
    """The objects of one array, or of several behind each other, each with whether it begins a new array.

    Damaged or cut input ends the iteration. Nesting beyond the interpreter's limit counts as damaged.
    """
    index, length, fresh = 0, len(text), False
    while index < length:
        char = text[index]
        if char in _SPACE:
            index += 1
        elif char == "[":
            fresh = True
            index += 1
        elif char == "{":
            try:
                value, index = _DECODER.raw_decode(text, index)
            except (ValueError, RecursionError):
                return
            yield value, fresh
            fresh = False
        else:
            index = text.find("[", index)
            if index < 0:
                return


def parse(text: str) -> tuple[list[Draft], bool]:
    """The processes of py-spy JSON, and whether anything was left over (cut or damaged).

    Shape: text -> (drafts with threads, innermost frame first; torn). The main thread comes first, as in text dumps.
    """
    drafts: list[Draft] = []
    for row, fresh in objects(text):
        if not isinstance(row, dict) or not isinstance(row.get("frames"), list):
            continue
        pid = _int(row.get("pid"))
        if fresh or not drafts or drafts[-1].pid != pid:
            drafts.append(Draft(pid=pid, formats={"py-spy-json"}))
            _describe(drafts[-1], row)
        _add(drafts[-1], row)
    for draft in drafts:
        draft.threads.reverse()
    whole = text.rstrip().endswith("]")
    return drafts, not whole


def _describe(draft: Draft, row: dict[str, Any]) -> None:
    facts = row.get("process_info")
    if isinstance(facts, dict) and isinstance(facts.get("command_line"), str):
        draft.title, draft.python = split_title(facts["command_line"])


def _add(draft: Draft, row: dict[str, Any]) -> None:
    tid = _int(row.get("os_thread_id")) or _int(row.get("thread_id"))
    if tid is None or tid in draft.tids:
        tid = -1 - len(draft.threads)
    draft.tids[tid] = len(draft.threads)
    frames = cut_parent_chain([f for f in map(_frame, row["frames"]) if f is not None])
    draft.frames += len(frames)
    name, active, gil = row.get("thread_name"), row.get("active"), row.get("owns_gil")
    draft.threads.append(
        ThreadSample(
            tid=tid,
            name=clean(name) if isinstance(name, str) and name else None,
            active=active if isinstance(active, bool) else None,
            holds_gil=gil if isinstance(gil, bool) else None,
            frames=tuple(frames),
        )
    )
