"""What was concluded: evidence, verdicts per rule, findings, and the whole diagnosis."""

from __future__ import annotations

import enum

import msgspec

from enginectl.model.observed import Endpoint, Gap, GpuSample, Understood


class Outcome(enum.Enum):
    """What one rule says of one recording."""

    FIRED = "fired"
    CLEAR = "clear"
    UNDECIDED = "undecided"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One compared fact. `value` and `holds` are None when it could not be read; `of` names the role or thread."""

    fact: str
    of: str = ""
    value: float | str | bool | None = None
    unit: str = ""
    op: str = ""
    threshold: float | str | bool | None = None
    meaning: str = ""
    holds: bool | None = None


class RuleVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One rule's answer, with the evidence of the case that came nearest and the sources that were missing."""

    code: str
    outcome: Outcome
    case: int = 0
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()


class AdviceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do: what, and what it is expected to change."""

    id: str
    text: str
    expect: str = ""
    command: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A fired rule made readable."""

    code: str
    finding: str
    state: str
    severity: str
    confidence: str
    summary: str
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[AdviceLine, ...] = ()
    docs: tuple[str, ...] = ()


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """The thread (or process, when `tid` is None) that must act or change."""

    pid: int | None
    process_role: str
    rank: int | None = None
    tid: int | None = None
    thread_role: str | None = None
    wait_point: str | None = None
    wait_class: str | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The one sentence. `outcome` undecided carries at most four candidates and what would tell them apart."""

    state: str
    outcome: str
    finding: str
    code: str
    confidence: str
    summary: str
    candidates: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    culprit: Culprit | None = None


class ChainLink(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the blame chain: this thread waits for that role through this channel."""

    pid: int
    tid: int | None
    thread_role: str
    process_role: str
    waits_for: str
    through: str
    wait_point: str
    wait_class: str
    meaning: str


class ThreadRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the threads table. Ratios are 0..1, None when not measured; `frames` are innermost first."""

    tid: int
    name: str
    role: str
    wait_point: str
    wait_class: str
    activity: str
    meaning: str = ""
    os_state: str | None = None
    running_ratio: float | None = None
    cpu_ratio: float | None = None
    gil_ratio: float | None = None
    runqueue_ratio: float | None = None
    frames: tuple[str, ...] = ()


class ProcessRow(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the report with its threads."""

    pid: int
    role: str
    rank: int | None
    title: str
    engine: str
    engine_version: str
    python_version: str
    os_state: str
    cpu_ratio: float | None = None
    threads: tuple[ThreadRow, ...] = ()


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """One evidence tier: T0 counters, T1 /proc and NVML, T2 Python stacks, T3 native frames."""

    name: str
    reached: bool
    adds: str
    unlock: str = ""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What the observation cost: wall time, longest pause of the target (upper bound), stack samples."""

    wall_seconds: float
    pause_seconds_max: float
    samples: int


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer; `render` turns it into text, JSON, HTML or Markdown."""

    schema_version: int
    verdict: Verdict
    findings: tuple[Finding, ...]
    chain: tuple[ChainLink, ...]
    processes: tuple[ProcessRow, ...]
    gpus: tuple[GpuSample, ...]
    engine_counters: dict[str, float]
    tiers: tuple[Tier, ...]
    gaps: tuple[Gap, ...]
    cost: Cost
    endpoint: Endpoint | None = None
    understood: Understood | None = None
    notes: tuple[str, ...] = ()
    rules: tuple[RuleVerdict, ...] = ()
    buckets: tuple[str, ...] = ()
