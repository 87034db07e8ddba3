"""Wording shared by every report: numbers with units, plain phrases, and free text made safe to print.

Titles and thread names are chosen by whoever runs a process: `clean` must see every such string.
"""

from __future__ import annotations

import math
import re
import unicodedata

from enginectl.model.diagnosed import Evidence, ThreadRow, Verdict

Value = float | str | bool | None

UNREAD = "-"
HELPER_ROLES = frozenset({"helper", "monitor"})
HEALTHY_STATES = frozenset({"idle", "busy"})
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_OS_STATES = {"T": "stopped", "t": "traced", "Z": "zombie", "X": "gone", "D": "disk wait"}
_COMPARISONS = {
    ">=": "at least", "<=": "at most", ">": "more than", "<": "less than", "==": "exactly", "!=": "anything but",
}  # fmt: skip
_CLASSES = {
    "idle": "waits for work",
    "peer": "waits for another thread or process",
    "lock": "waits for a lock",
    "gil": "waits for the interpreter lock (GIL)",
    "device": "waits for the device",
    "collective": "waits for the other ranks",
    "ipc-send": "cannot send: the peer does not read",
    "io": "waits for a file or the network",
    "timer": "sleeps",
    "cpu": "runs",
    "startup": "is starting",
    "shutdown": "is shutting down",
    "unknown": "is at a place that no rule knows",
}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def clean(text: object) -> str:
    """Text that is safe on a terminal: one line, no control, escape, direction or unprintable character.

    Shape: anything with a `str` -> one line; white space becomes one space, the rest of the unprintable "?".
    Errors: none.
    """
    raw = str(text)
    if raw.isascii() and raw.isprintable():
        return raw
    return "".join(_visible(character) for character in unicodedata.normalize("NFC", raw))


def clean_block(text: object) -> str:
    """Like `clean`, but line breaks stay: for commands and manifest lines."""
    return "\n".join(clean(line) for line in str(text).replace("\r\n", "\n").split("\n"))


def _visible(character: str) -> str:
    if character in "\t\n\r\x0b\x0c\x85\u2028\u2029" or unicodedata.category(character) == "Zs":
        return " "
    if "\ufe00" <= character <= "\ufe0f" or unicodedata.category(character) == "Me":
        return ""
    return "?" if unicodedata.category(character) in _HIDDEN else character


def ratio(value: float | None) -> str:
    """0..1 -> "72%"; None or not a number -> "-". Never rounds up to 100% or down to 0%."""
    if value is None or not math.isfinite(value):
        return UNREAD
    percent = value * 100
    if 0 < percent < 0.95 or 99.5 <= percent < 100:
        return f"{max(0.1, min(99.9, percent)):.1f}%"
    return f"{percent:.0f}%"


def seconds(value: float | None) -> str:
    """Seconds -> "11 ms", "2.3 s", "5 min 3 s", "2 h 10 min"; None or not finite -> "-"."""
    if value is None or not math.isfinite(value):
        return UNREAD
    size = abs(value)
    if size == 0:
        return "0 s"
    if size < 0.001:
        return "under 1 ms"
    if size < 0.9995:
        return f"{value * 1000:.0f} ms"
    if size < 59.95:
        return f"{value:.1f}".removesuffix(".0") + " s"
    minutes, rest = divmod(round(size), 60)
    sign = "-" if value < 0 else ""
    if minutes < 60:
        return f"{sign}{minutes} min" + (f" {rest} s" if rest else "")
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours} h" + (f" {minutes} min" if minutes else "")


def size(value: float | None) -> str:
    """Bytes -> "0 B", "512 KiB", "60.1 GiB"; None or not finite -> "-"."""
    if value is None or not math.isfinite(value):
        return UNREAD
    amount, step = float(value), 0
    while abs(amount) >= 1024 and step < len(_BINARY) - 1:
        amount, step = amount / 1024, step + 1
    return f"{amount:.0f} {_BINARY[step]}" if step == 0 or abs(amount) >= 100 else f"{amount:.1f} {_BINARY[step]}"


def number(value: float | None) -> str:
    """A bare number: "812", "0.25", "1.2e+09"; None or not finite -> "-"."""
    if value is None or not math.isfinite(value):
        return UNREAD
    if float(value).is_integer() and abs(value) < 1e7:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) < 100 or abs(value) >= 1e7 else f"{value:.0f}"


def plural(count: int, noun: str, many: str = "") -> str:
    """(1, "process") -> "1 process"; (2, "process", "processes") -> "2 processes"."""
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def quantity(value: Value, unit: str) -> str:
    """A value in words for its unit (`ratio`, `seconds`, `bytes`, `percent`, …); None -> "not read"."""
    if value is None:
        return "not read"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return clean(value) or "(empty)"
    if unit in _FORMATS:
        return _FORMATS[unit](value)
    return number(value) + (_SYMBOLS.get(unit) or (f" {clean(unit)}" if unit and unit != "count" else ""))


_FORMATS = {"ratio": ratio, "seconds": seconds, "s": seconds, "bytes": size}
_SYMBOLS = {"percent": "%", "watts": " W", "1/s": "/s", "bytes/s": " B/s", "mhz": " MHz"}


def threshold(evidence: Evidence) -> str:
    """What the rule asks of a fact: "at least 50%"; empty when a yes/no says it already."""
    asked = evidence.threshold
    if asked is None or asked == "" or (isinstance(asked, bool | str) and asked == evidence.value):
        return ""
    if evidence.op == "in":
        return "one of " + listing(clean(asked).split("|"))
    unit = evidence.unit if evidence.unit in _SYMBOLS or evidence.unit in _FORMATS else ""
    return f"{_COMPARISONS.get(evidence.op, clean(evidence.op))} {quantity(asked, unit)}".strip()


def fact(evidence: Evidence) -> str:
    """The fact in plain words, and whom it is about where the words do not say so."""
    meaning, whom = clean(evidence.meaning).rstrip(".").removeprefix("whether "), clean(evidence.of)
    if not meaning:
        return f"{clean(evidence.fact)} of {whom}" if whom else clean(evidence.fact)
    return meaning if not whom or whom in meaning or whom.replace("-", " ") in meaning else f"{meaning}, {whom}"


def wait_class(name: str | None) -> str:
    """A wait class as a verb phrase: `device` -> "waits for the device"."""
    return _CLASSES.get(name or "unknown", clean(name))


def thread_name(name: str) -> str:
    """A thread's name; of Python's own "Thread-3 (serve)" only the function is kept."""
    default = re.fullmatch(r"Thread-\d+ \((.+)\)", clean(name))
    return default[1] if default else clean(name)


def thread_state(row: ThreadRow) -> str:
    """One word for the threads table: the wait class, "running" ("still" if it never moved), or an OS state."""
    if row.os_state in ("T", "t", "Z", "X") or (row.os_state == "D" and row.wait_class == "unknown"):
        return _OS_STATES[row.os_state]
    if row.wait_class == "cpu":
        return "still" if row.activity == "waiting" and row.running_ratio == 0 else "running"
    return clean(row.activity if row.wait_class == "unknown" else row.wait_class)


def os_state(letter: str | None) -> str:
    """The state letter of /proc in words, empty for the ordinary R, S and I."""
    return _OS_STATES.get(letter or "", "")


def process(role: str, pid: int | None, rank: int | None) -> str:
    """A process by role, rank and pid: "worker rank 3 (pid 4330)"."""
    name = clean(role) or "process"
    if rank is not None:
        name += f" rank {rank}"
    return f"{name} (pid {pid})" if pid is not None and pid > 0 else name


def awaited(role: str) -> str:
    """Whom a link waits for: `worker:worker-loop` -> "worker-loop of worker"."""
    name, _, thread = clean(role).partition(":")
    return f"{thread} of {name}" if thread else name


def confidence(level: str) -> str:
    """`high` -> "high confidence"."""
    return f"{clean(level)} confidence" if level else "confidence not stated"


def headline(verdict: Verdict) -> str:
    """The state word that opens a report: "HUNG", or "CANNOT TELL YET" when undecided."""
    if verdict.outcome != "decided":
        known = clean(verdict.state)
        return "CANNOT TELL YET" if known in ("", "unknown") else f"CANNOT TELL YET ({known}, cause open)"
    return clean(verdict.state).upper() or "UNKNOWN"


def is_healthy(verdict: Verdict) -> bool:
    """True only for a decided idle or busy verdict; the one case in which a report may say so."""
    return verdict.outcome == "decided" and verdict.state in HEALTHY_STATES


def listing(items: tuple[str, ...] | list[str], last: str = "or") -> str:
    """("a", "b", "c") -> "a, b or c"."""
    return f" {last} ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def spans(numbers: list[int]) -> str:
    """[0, 1, 2, 4] -> "0-2, 4"."""
    runs: list[list[int]] = []
    for value in sorted(set(numbers)):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
