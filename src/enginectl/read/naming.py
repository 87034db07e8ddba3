"""Names as they stand in a dump, made safe to keep: control characters out, secrets out, ranks found."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "[redacted]"
NAME_LIMIT = 512
TITLE_LIMIT = 2048

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"  # controls, bidi, lone surrogates
)
_RANK = re.compile(r"(?:^|[_\s\[(:])(DP|TP|PP|EP)[_-]?(\d{1,6})(?=$|[_\s\]):,.])")
_VLLM = re.compile(r"(?:EngineCore|APIServer|Worker|DPCoordinator|DPMoEEngineCore)(?:_|$|-?\d)")
_SECRET_NAME = re.compile(r"(?i)api[-_]?key|token|secret|passw|credential|auth")
_NOT_SECRET = re.compile(r"(?i)tokenizer|tokens|token[-_]?(?:threshold|budget|ids?)")
_SECRET_VALUE = re.compile(r"\b(?:sk|hf|ghp|gho|xox[bap])[-_][A-Za-z0-9_-]{8,200}")
_URL_LOGIN = re.compile(r"(?<=://)[^/\s:@]{1,200}:[^/\s@]{1,200}(?=@)")
_TRAILING_PYTHON = re.compile(r"\s*\(?[Pp]ython v?(\d+\.\d+(?:\.\d+)?\w*)[^()]{0,80}\)?$")


def clean(text: str, limit: int = NAME_LIMIT) -> str:
    """The text without characters that could steer a terminal (each becomes `?`), cut to `limit` characters."""
    if len(text) > limit:
        text = text[:limit]
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub("?", text)


def rank_tags(text: str) -> dict[str, int]:
    """Rank labels of a title or a logger head: `Worker_DP1_TP3` gives {'dp': 1, 'tp': 3}."""
    return {tag.lower(): int(number) for tag, number in _RANK.findall(text)}


def title_ranks(title: str) -> dict[str, int]:
    """Rank labels of a process title; a whole command line (`serve --tp 2`) carries none."""
    return rank_tags(title) if "::" in title or len(title) <= 40 else {}


def split_title(text: str) -> tuple[str, str | None]:
    """The text behind `Process PID:` as (title, Python version or None)."""
    text = text[:TITLE_LIMIT].strip()
    found = _TRAILING_PYTHON.search(text)
    if found and found.start() > 0 and text[found.start()] in " (":
        return text[: found.start()].strip(), found.group(1)
    return text, None


def full_title(name: str) -> str:
    """The process title behind a short name of a log prefix or a heading: `Worker_TP0` gives `VLLM::Worker_TP0`."""
    return f"VLLM::{name}" if _VLLM.match(name) else name


def command_of(title: str) -> tuple[str, ...]:
    """The words of a title that is a command line; () for a name such as `VLLM::EngineCore`."""
    words = title.split()
    if not words or "::" in words[0] or not ("/" in words[0] or (len(words) > 1 and words[0].islower())):
        return ()
    return tuple(words)


def redact(words: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """The words of a command line with secret values masked, and whether any was."""
    result: list[str] = []
    hide_next = taken = False
    for word in words:
        if hide_next and not word.startswith("--"):
            result.append(MASK)
            hide_next, taken = False, True
            continue
        hide_next = False
        flag, equals, _ = word.partition("=")
        if word.startswith("-") and _SECRET_NAME.search(flag) and not _NOT_SECRET.search(flag):
            hide_next = not equals
            taken = taken or bool(equals)
            result.append(f"{flag}={MASK}" if equals else word)
            continue
        masked = _URL_LOGIN.sub(MASK, _SECRET_VALUE.sub(MASK, word))
        taken = taken or masked != word
        result.append(masked)
    return tuple(result), taken


def flags_of(command: Sequence[str]) -> dict[str, str]:
    """`--flag value`, `--flag=value` and bare `--flag` (value `true`) of a command line."""
    flags: dict[str, str] = {}
    for index, word in enumerate(command):
        if not word.startswith("--") or word == "--":
            continue
        flag, equals, value = word.partition("=")
        if not equals:
            following = command[index + 1] if index + 1 < len(command) else ""
            value = following if following and not following.startswith("--") else "true"
        flags[flag] = value
    return flags
