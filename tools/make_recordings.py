"""Takes a recording from the bundled engine for each named fault and reduces it to a fixture.

    python tools/make_recordings.py FAULT...                 (all faults when none is named)
    python tools/make_recordings.py --from FILE.ecrec NAME   (a recording of another engine, as NAME.json)

A fixture keeps at most six snapshots, short paths, the frames that matter, and no command lines.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec

from enginectl.classify.identify import ranks_of
from enginectl.cli import pipeline
from enginectl.cli.demo_process import Demo
from enginectl.cli.selftest import fault_table
from enginectl.diagnose.diagnose import diagnose
from enginectl.model.observed import Frame, ProcessSample, Recording, Snapshot, ThreadSample
from enginectl.observe.record import Observation, Settings
from enginectl.read import read

FOLDER = Path(__file__).parents[1] / "fixtures" / "recordings"
KEEP = 6
FRAMES = 24
COUNTERS = re.compile(
    r"num_requests|kv_cache_usage|iteration_tokens|_tokens_total|request_success|preemptions|model_info"
)
PATH = re.compile(r".*/(?:site-packages|lib/python3\.\d+|src|bin)/")


def _frame(frame: Frame) -> Frame:
    return msgspec.structs.replace(frame, file=PATH.sub("", frame.file))


def _thread(thread: ThreadSample) -> ThreadSample:
    frames = thread.frames
    if frames is None:
        return thread
    kept = frames if len(frames) <= FRAMES else (*frames[: FRAMES - 8], *frames[-8:])
    return msgspec.structs.replace(thread, frames=tuple(_frame(f) for f in kept))


def _process(process: ProcessSample) -> ProcessSample:
    pipes = tuple(re.sub(r"/\S*/", "", text) for text in process.blocked_pipes)
    locks = tuple(re.sub(r"/\S*/", "", text) for text in process.awaited_file_locks)
    return msgspec.structs.replace(
        process,
        threads=tuple(_thread(t) for t in process.threads if t.frames is not None),
        blocked_pipes=pipes,
        awaited_file_locks=locks,
    )


def _snapshot(snapshot: Snapshot) -> Snapshot:
    counters = snapshot.counters
    endpoint = snapshot.endpoint
    return msgspec.structs.replace(
        snapshot,
        processes=tuple(_process(p) for p in snapshot.processes),
        counters=tuple(c for c in counters if COUNTERS.search(c.name)) if counters is not None else None,
        endpoint=msgspec.structs.replace(endpoint, url="http://127.0.0.1:8000/metrics", detail="")
        if endpoint
        else None,
        gaps=(),
    )


def reduce(recording: Recording) -> Recording:
    """The same facts, small and without anything of the machine they were taken on."""
    snapshots = recording.snapshots
    last = len(snapshots) - 1
    chosen = sorted({round(i * last / (KEEP - 1)) for i in range(KEEP)})
    return msgspec.structs.replace(
        recording,
        processes=tuple(
            msgspec.structs.replace(p, command=(), flags={}, environment={}, title=_title(p.title))
            for p in recording.processes
        ),
        snapshots=tuple(_snapshot(snapshots[i]) for i in chosen),
        gaps=(),
        notes=(),
        redactions=(),
    )


def _title(title: str) -> str:
    return title if not title.startswith("python") else "python"


def take(fault: str) -> Recording:
    """One observation of a live fault, as long as `doctor` would look."""
    knowledge = pipeline.knowledge_of("")
    with Demo(fault) as demo:
        if not demo.wait_for("fault-active"):
            raise SystemExit(f"{fault}: the fault did not take hold")
        seen = Observation(
            demo.pid, Settings(), pipeline.Recogniser(knowledge), pipeline.packages_of(knowledge), ranks_of
        )
        seen.extend(2.0, 5)
        if pipeline.needs_confirmation(diagnose(seen.recording(), knowledge)):
            seen.extend(pipeline.CONFIRM_SECONDS, pipeline.CONFIRM_SAMPLES)
        return seen.recording()


def _write(name: str, recording: Recording) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / name).write_bytes(msgspec.json.format(msgspec.json.encode(recording), indent=0) + b"\n")


def from_file(path: Path, name: str) -> int:
    """Reduce a recording that was taken already."""
    with path.open("rb") as stream:
        recording = reduce(read([(path.name, stream)]))
    _write(f"{name}.json", recording)
    print(f"{name}.json: {diagnose(recording, pipeline.knowledge_of('')).verdict.finding}")
    return 0


def main() -> int:
    """Write one fixture per fault; nothing is written when the reduced recording does not give the finding."""
    wanted = sys.argv[1:]
    if wanted[:1] == ["--from"]:
        return from_file(Path(wanted[1]), wanted[2])
    knowledge = pipeline.knowledge_of("")
    codes = {r.finding: r.id for r in knowledge.rules.values()}
    failed = 0
    for row in fault_table():
        if (wanted and row.name not in wanted) or not row.supported:
            continue
        recording = reduce(take(row.name))
        found = diagnose(recording, knowledge).verdict.finding
        healthy = row.accepted[0] in ("idle", "compute-bound")
        name = f"healthy-{row.name}.json" if healthy else f"{codes[row.accepted[0]]}-fires-{row.name}.json"
        if found not in row.accepted:
            print(f"{row.name}: found {found}, not written")
            failed += 1
            continue
        _write(name, recording)
        print(f"{name}: {found}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
