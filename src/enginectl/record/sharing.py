"""What a recording may hold when it leaves the machine, and the account of what was taken out."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import BinaryIO

import msgspec

from enginectl.model.observed import ProcessFact, Recording

TAIL_BYTES = 1 << 20
TAIL_LINES = 5000
Environment = tuple[Mapping[str, str], int] | None
_MASK = "[redacted]"


def with_environment(head: Recording, read: Callable[[int], Environment]) -> Recording:
    """The recording with the allowed variables of each engine process, and the account of it in `redactions`."""
    processes: list[ProcessFact] = []
    account: list[str] = []
    for fact in head.processes:
        found = read(fact.pid) if fact.role not in (None, "helper") else None
        if found is None:
            processes.append(fact)
            continue
        kept, count = found
        processes.append(msgspec.structs.replace(fact, environment=dict(kept), environment_count=count))
        told = f"{len(kept)} of {count} variables kept" if count else "overwritten by its title, nothing kept"
        account.append(f"environment of pid {fact.pid}: {told}")
    return msgspec.structs.replace(head, processes=tuple(processes), redactions=(*head.redactions, *account))


def with_log(head: Recording, name: str, lines: Iterable[bytes], words_of: Callable[[str], Iterable[str]]) -> Recording:
    """The recording with a log's lines as class words and their counts in `notes`; no line is kept."""
    counts: Counter[str] = Counter()
    total = 0
    for line in lines:
        total += 1
        counts.update(words_of(line.decode("utf-8", "replace")))
    told = [f"log: {word} (in {count} lines)" for word, count in counts.most_common()]
    account = f"log {name}: {total} lines read, {sum(counts.values())} class words kept, no text"
    return msgspec.structs.replace(head, notes=(*head.notes, *told), redactions=(*head.redactions, account))


def tail_of(stream: BinaryIO) -> list[bytes]:
    """The last lines of a log, at most `TAIL_LINES` and 1 MiB of them. Errors: OSError."""
    size = stream.seek(0, 2)
    stream.seek(max(0, size - TAIL_BYTES))
    lines = stream.read(TAIL_BYTES).split(b"\n")
    return list(deque(lines[1:] if size > TAIL_BYTES else lines, TAIL_LINES))


def account_of(recording: Recording) -> list[str]:
    """What was taken out, one line each: for stderr, before anybody sends the file away."""
    lines: list[str] = []
    for fact in recording.processes:
        hidden = [flag for flag, value in fact.flags.items() if _MASK in value]
        if hidden:
            lines.append(f"command line of pid {fact.pid}: the values of {', '.join(hidden)}")
        elif any(_MASK in word for word in (*fact.command, fact.title)):
            lines.append(f"command line of pid {fact.pid}: a value that looks like a secret")
    seen = {f"command line of pid {fact.pid}" for fact in recording.processes}
    lines += [text for text in recording.redactions if text not in seen]
    return [*lines, "never read: locals, arguments, requests, prompts, answers"]
