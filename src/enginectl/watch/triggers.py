"""Triggers as data: the TOML file and its checks."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
import tomli

from enginectl.diagnose.facts import FACTS
from enginectl.errors import UsageError
from enginectl.knowledge.schema import Condition

OPERATORS = frozenset({">=", "<=", ">", "<", "==", "!=", "in"})
GONE = "gone"
STATES = frozenset({"idle", "busy", "slow", "hung", "starting", "crashed", "unknown", GONE})
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Positive = Annotated[float, msgspec.Meta(gt=0, le=3600)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=86400)]


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; unknown keys are refused."""


class When(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of `state`, `finding` and `fact` (with `op` and `value`)."""

    state: str = ""
    finding: str = ""
    fact: str = ""
    op: str = ""
    value: float | str | bool | None = None
    of: str = ""
    wait: str = ""

    @property
    def condition(self) -> Condition:
        """The comparison of a fact, as rules know it."""
        assert self.value is not None
        return Condition(fact=self.fact, op=self.op, value=self.value, of=self.of, wait=self.wait)


class RecordingAction(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Save the ring, and go on for a while."""

    after_seconds: _Seconds = 10.0


class CommandAction(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run a program, without a shell, for a bounded time."""

    argv: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    timeout_seconds: _Positive = 10.0


class WebhookAction(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST a JSON object."""

    url: str
    timeout_seconds: _Positive = 5.0


class LogAction(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say it on stdout, where every line of the watch goes."""

    text: str = ""


class Trigger(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row: when, for how long, how often, and what to do."""

    name: str
    when: When
    for_seconds: _Seconds = 0.0
    max_per_hour: _Count = 6
    recording: RecordingAction | None = None
    command: CommandAction | None = None
    webhook: WebhookAction | None = None
    log: LogAction | None = None


class Limits(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds over all triggers."""

    fires_per_hour: _Count = 20
    disk_mebibytes: Annotated[float, msgspec.Meta(gt=0)] = 512.0


class Plan(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    limits: Limits = Limits()
    trigger: tuple[Trigger, ...] = ()


def load_plan(path: str = "") -> Plan:
    """The triggers of a file, or the packaged ones. Errors: UsageError that names the row and what is wrong with it."""
    try:
        text = Path(path).read_text("utf-8") if path else _packaged()
        plan = msgspec.convert(tomli.loads(text), Plan)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (tomli.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path or 'triggers.toml'}: {error}") from None
    names: set[str] = set()
    for row in plan.trigger:
        wrong = _wrong(row) or ("its name is used twice" if row.name in names else "")
        if wrong:
            raise UsageError(f"{path or 'triggers.toml'}: trigger {row.name!r}: {wrong}")
        names.add(row.name)
    return plan


def _packaged() -> str:
    return files("enginectl.watch").joinpath("triggers.toml").read_text("utf-8")


def _wrong(row: Trigger) -> str:
    """What is wrong with a row, "" when nothing is."""
    when = row.when
    if not _NAME.fullmatch(row.name):
        return "a name has small letters, digits and hyphens, 40 at most"
    if sum(map(bool, (when.state, when.finding, when.fact))) != 1:
        return "`when` has one of state, finding and fact"
    if unknown := set(when.state.split("|")) - STATES - {""}:
        return f"no state is called {', '.join(sorted(unknown))}"
    if when.fact and (when.fact not in FACTS or when.op not in OPERATORS or when.value is None):
        return f"`{when.fact}` is no fact, or `op` and `value` are missing"
    if row.webhook and not (urlsplit(row.webhook.url).scheme in ("http", "https") and urlsplit(row.webhook.url).netloc):
        return "a webhook's url begins with http:// or https://"
    return ""
