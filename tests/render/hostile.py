"""Diagnoses with arbitrary contents, for properties that hold for every report."""

from __future__ import annotations

from hypothesis import strategies as st

from enginectl.model import diagnosed, observed

HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "a\x07b",
    "\x9b2J",
    "tab\tnew\nline\r",
    "\u202egnp.exe",
    "日本語のスレッド" * 6,
    "x" * 300,
    "\ud800",
    "[bold]m[/bold]",
    "</script><script>alert(1)</script>",
    "`|<details>",
    "🧵👩‍👩‍👧❤️",
    "e\u0301" * 50,
)
TEXT = st.one_of(
    st.sampled_from(HOSTILE), st.text(max_size=40), st.sampled_from(("engine-loop", "worker", "", "helper"))
)
NUMBER = st.one_of(st.none(), st.floats(0, 1.5), st.sampled_from((float("nan"), float("inf"), 1e30, 0.9999, 1e-9)))
VALUE = st.one_of(st.none(), st.booleans(), st.floats(), TEXT)
PID = st.integers(-1, 5)
RANK = st.one_of(st.none(), st.integers(0, 8))


def several(strategy: st.SearchStrategy[object], most: int = 3) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(strategy, max_size=most).map(tuple)


EVIDENCE = st.builds(
    diagnosed.Evidence,
    fact=TEXT,
    of=TEXT,
    value=VALUE,
    threshold=VALUE,
    meaning=TEXT,
    unit=st.sampled_from(("", "ratio", "s", "seconds", "bytes", "cores", "1/s", "percent", "requests", "\x1b")),
    op=st.sampled_from((">=", "<", "==", "in", "?")),
)
ADVICE = st.builds(diagnosed.AdviceLine, id=TEXT, text=TEXT, expect=TEXT, command=TEXT)
FINDING = st.builds(
    diagnosed.Finding,
    code=st.sampled_from(("EC605", "EC701", "")),
    finding=TEXT,
    state=TEXT,
    severity=TEXT,
    confidence=TEXT,
    summary=TEXT,
    evidence=several(EVIDENCE),
    advice=several(ADVICE),
    docs=several(TEXT),
)
CULPRIT = st.builds(
    diagnosed.Culprit,
    pid=st.one_of(st.none(), PID),
    process_role=TEXT,
    rank=RANK,
    tid=st.one_of(st.none(), PID),
    thread_role=st.one_of(st.none(), TEXT),
    wait_point=st.one_of(st.none(), TEXT),
    wait_class=st.one_of(st.none(), TEXT),
)
VERDICT = st.builds(
    diagnosed.Verdict,
    state=st.one_of(st.sampled_from(("idle", "busy", "hung", "unknown")), TEXT),
    outcome=st.sampled_from(("decided", "undecided")),
    finding=st.one_of(st.just("deadlock"), TEXT),
    code=st.sampled_from(("EC605", "EC701", "")),
    confidence=TEXT,
    summary=TEXT,
    candidates=several(TEXT, 6),
    needs=several(st.one_of(st.sampled_from(("gpu", "native", "second-sample")), TEXT)),
    culprit=st.one_of(st.none(), CULPRIT),
)
LINK = st.builds(
    diagnosed.ChainLink,
    pid=PID,
    tid=st.one_of(st.none(), PID),
    thread_role=TEXT,
    process_role=TEXT,
    waits_for=TEXT,
    through=TEXT,
    wait_point=TEXT,
    wait_class=TEXT,
    meaning=TEXT,
)
THREAD = st.builds(
    diagnosed.ThreadRow,
    tid=PID,
    name=TEXT,
    role=TEXT,
    wait_point=TEXT,
    wait_class=st.sampled_from(("cpu", "idle", "unknown", "device", "\x1b")),
    activity=TEXT,
    meaning=TEXT,
    os_state=st.sampled_from((None, "S", "T", "D", "\x1b")),
    running_ratio=NUMBER,
    cpu_ratio=NUMBER,
    gil_ratio=NUMBER,
    runqueue_ratio=NUMBER,
    frames=several(TEXT, 12),
)
PROCESS = st.builds(
    diagnosed.ProcessRow,
    pid=PID,
    role=TEXT,
    rank=RANK,
    title=TEXT,
    engine=TEXT,
    engine_version=TEXT,
    python_version=TEXT,
    os_state=st.sampled_from(("", "S", "T")),
    cpu_ratio=NUMBER,
    threads=several(THREAD),
)
GPU = st.builds(
    observed.GpuSample,
    index=st.integers(0, 9),
    name=st.one_of(st.none(), TEXT),
    utilization_percent=NUMBER,
    memory_activity_percent=NUMBER,
    power_watts=NUMBER,
    power_limit_watts=NUMBER,
    throttle_reasons=several(TEXT),
    memory_used_bytes=st.one_of(st.none(), st.integers(0, 2**50)),
    xid=RANK,
    ecc_errors_uncorrected=RANK,
)
TIER = st.builds(
    diagnosed.Tier, name=TEXT, reached=st.booleans(), adds=TEXT, unlock=st.one_of(TEXT, st.just("--native"))
)
COST = st.builds(diagnosed.Cost, wall_seconds=st.floats(), pause_seconds_max=st.floats(), samples=st.integers(0, 9))
DIAGNOSES = st.builds(
    diagnosed.Diagnosis,
    schema_version=st.just(1),
    verdict=VERDICT,
    findings=several(FINDING),
    chain=several(LINK, 12),
    processes=several(PROCESS, 5),
    gpus=several(GPU),
    tiers=several(TIER),
    cost=COST,
    engine_counters=st.dictionaries(
        st.one_of(st.sampled_from(("running", "kv_usage_ratio")), TEXT), st.floats(), max_size=4
    ),
    gaps=several(st.builds(observed.Gap, source=TEXT, reason=TEXT, remedy=TEXT)),
    notes=several(TEXT),
    buckets=several(TEXT),
    endpoint=st.one_of(st.none(), st.builds(observed.Endpoint, url=TEXT, state=TEXT, detail=TEXT)),
    understood=st.one_of(st.none(), st.builds(observed.Understood, formats=several(TEXT), torn=st.integers(0, 3))),
    rules=several(
        st.builds(diagnosed.RuleVerdict, code=TEXT, outcome=st.sampled_from(diagnosed.Outcome), missing=several(TEXT))
    ),
)
