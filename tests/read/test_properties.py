"""Any process survives being printed and read; any bytes are read without failing."""

import io
import subprocess
import sys
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enginectl.errors import EnginectlError
from enginectl.model.observed import Recording
from enginectl.read import read

from .test_envelope import WRAPPED

ROOT = Path(__file__).resolve().parents[2]
IDENT = st.from_regex(r"[a-z_][a-zA-Z0-9_]{0,20}", fullmatch=True)
FUNCTION = st.one_of(IDENT, st.sampled_from(["<module>", "<lambda>", "__call__", "Class.method"]))
FILE = st.builds(lambda a, b: f"{a}/{b}.py", IDENT, IDENT)
FRAME = st.tuples(FUNCTION, FILE, st.integers(1, 99_999))
NAME = st.from_regex(r"[A-Za-z][A-Za-z0-9_ ()-]{0,20}[A-Za-z0-9)]", fullmatch=True)
THREAD = st.tuples(
    st.sampled_from(["idle", "active", "active+gil"]), st.none() | NAME, st.lists(FRAME, min_size=1, max_size=6)
)
PROCESS = st.tuples(st.integers(1, 99_999), st.lists(THREAD, min_size=1, max_size=4))


def printed(process):
    pid, threads = process
    lines = [f"Process {pid}: VLLM::Worker_TP3", "Python v3.12.1 (/usr/bin/python3.12)", ""]
    for number, (state, name, frames) in enumerate(threads):
        lines.append(f"Thread {pid + number} ({state})" + (f': "{name}"' if name else ""))
        lines += [f"    {function} ({file}:{line})" for function, file, line in frames]
    return lines


@settings(max_examples=150, deadline=None)
@given(
    processes=st.lists(PROCESS, min_size=1, max_size=3, unique_by=lambda p: p[0]), wrap=st.sampled_from(sorted(WRAPPED))
)
def test_round_trip(processes, wrap):
    text = "".join(WRAPPED[wrap](line) + "\n" for process in processes for line in printed(process))
    recording = read([("dump", io.BytesIO(text.encode()))])
    assert recording.understood.torn == 0
    assert [p.pid for p in recording.processes] == [pid for pid, _ in processes]
    for sample, (pid, threads) in zip(recording.snapshots[0].processes, processes, strict=True):
        found = {
            t.tid: (t.active, t.holds_gil, t.name, [(f.function, f.file, f.line) for f in t.frames])
            for t in sample.threads
        }
        assert found == {
            pid + number: (state != "idle", state == "active+gil", name, frames)
            for number, (state, name, frames) in enumerate(threads)
        }


SEEDS = [p.read_bytes() for p in sorted((ROOT / "fixtures" / "read").iterdir())]
PIECES = st.sampled_from(sorted({line for seed in SEEDS for line in seed.splitlines(keepends=True)}))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.binary(max_size=300), st.lists(PIECES | st.binary(max_size=30), max_size=30).map(b"".join)))
def test_any_bytes_are_read(raw):
    try:
        recording = read([("any", io.BytesIO(raw))])
    except EnginectlError:
        return
    assert msgspec.json.decode(msgspec.json.encode(recording), type=Recording) == recording
    for process in recording.processes:
        assert process.title.isprintable() or "\u00ad" in process.title


def test_the_mutation_fuzzer_finds_nothing():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "fuzz_read.py"), "--seconds", "2", "--seed", "7"],
        capture_output=True, text=True, timeout=60, env={"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
