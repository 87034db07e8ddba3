"""Secrets are taken out of command lines before anything is stored."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "[redacted]"
_SECRET_NAME = re.compile(r"(?i)(?:api[-_]?key|token|secret|passw|credential|auth)")
_NOT_SECRET = re.compile(
    r"(?i)tokenizer|max[-_].*token|num[-_].*token|token[-_]?(?:threshold|budget|ids?)|batched[-_]tokens"
)
_SECRET_VALUE = re.compile(r"\b(?:sk|hf|ghp|gho|xox[bap])[-_][A-Za-z0-9_-]{8,}|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")


def _is_secret(flag: str) -> bool:
    return bool(_SECRET_NAME.search(flag)) and not _NOT_SECRET.search(flag)


def redact_command(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command without secrets, and the flags whose values were taken out."""
    result: list[str] = []
    taken: list[str] = []
    hide_next = False
    for word in command:
        flag, equals, _ = word.partition("=")
        if hide_next and not word.startswith("--"):
            result.append(MASK)
            continue
        hide_next = False
        if equals and flag.startswith("-") and _is_secret(flag):
            result.append(f"{flag}={MASK}")
            taken.append(flag)
            continue
        if word.startswith("--") and _is_secret(word):
            hide_next = True
            taken.append(word)
        cleaned = _SECRET_VALUE.sub(MASK, word)
        if cleaned != word:
            taken.append("value")
        result.append(cleaned)
    return tuple(result), tuple(taken)
