"""Exports, each read back by a reader that is not ours: Perfetto's own classes, speedscope's own page."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import shutil
import subprocess
import tarfile
from collections import Counter, defaultdict
from pathlib import Path

import msgspec
import pytest
from tests.situations import FORWARD, IPC_IDLE, LOOP_IDLE, OUTPUT_IDLE, P, T, counters, recording

from enginectl.classify.timeline import timeline_of
from enginectl.knowledge.loader import load
from enginectl.model.observed import GpuSample, Recording
from enginectl.model.timeline import Timeline, TimelineRow, TimelineSeries
from enginectl.read import read
from enginectl.render.folded import render_folded
from enginectl.render.perfetto import render_perfetto
from enginectl.render.spans import edges_of, spans_of
from enginectl.render.speedscope import render_speedscope

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
KNOWLEDGE = load("")


def situation(**more: object) -> Recording:
    loop = T("EngineCoreLoop", [FORWARD, FORWARD, LOOP_IDLE], cpu=0.8)
    core = P(
        pid=100, title="engine_core", threads=[loop, T("OutputProcessor", [OUTPUT_IDLE]), T("IPCLoop", [IPC_IDLE])]
    )
    fields = {"counters": (counters(steps=1), counters(steps=9)), "gpus": [GpuSample(index=0, utilization_percent=97)]}
    return recording(core, samples=6, seconds=5.0, **(fields | more))


def timeline(of: Recording | None = None) -> Timeline:
    return timeline_of(of or situation(), KNOWLEDGE)


# --- the time axis


def test_the_last_snapshot_lasts_one_usual_interval() -> None:
    assert edges_of((0.0, 1.0, 2.0, 5.0)) == [0.0, 1.0, 2.0, 5.0, 6.0]
    assert edges_of((3.0,)) == [3.0, 4.0]
    assert edges_of(()) == []
    assert edges_of((0.0, 2.0, 1.0)) == [0.0, 2.0, 2.0, 4.0]


def test_equal_neighbours_are_one_span_and_unsampled_time_is_none() -> None:
    spans = list(spans_of(("a", "a", "", "b"), [0.0, 1.0, 2.0, 3.0, 4.0]))
    assert [(s.value, s.start, s.end, s.first, s.last) for s in spans] == [("a", 0, 2, 0, 1), ("b", 3, 4, 3, 3)]


# --- Perfetto


def decoded(raw: bytes):
    proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="perfetto is not installed")
    trace = proto.Trace()
    trace.ParseFromString(raw)
    assert trace.SerializeToString() == raw or trace.ByteSize() == len(raw), "fields that the schema does not know"
    return trace


def tracks_of(trace) -> dict[int, str]:
    found = [p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")]
    assert len({d.uuid for d in found}) == len(found), "two tracks have one identity"
    return {d.uuid: d.thread.thread_name or d.process.process_name or d.name for d in found}


def test_perfetto_shows_a_track_per_role_with_classes_and_points() -> None:
    trace = decoded(render_perfetto(timeline()))
    tracks = tracks_of(trace)
    assert {"engine-core (pid 100)", "engine-loop (EngineCoreLoop)"} <= set(tracks.values())
    slices: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for packet in trace.packet:
        event = packet.track_event
        if packet.HasField("track_event") and event.type == event.TYPE_SLICE_BEGIN:
            slices[tracks[event.track_uuid]].append((event.categories[0], event.name))
    loop = slices["engine-loop (EngineCoreLoop)"]
    assert [name for kind, name in loop if kind == "wait class"] == ["cpu", "idle", "cpu", "idle"]
    assert next(name for kind, name in loop if kind == "wait point").startswith("engine_core.")


def test_perfetto_slices_nest_and_time_only_grows() -> None:
    trace = decoded(render_perfetto(timeline()))
    open_slices: Counter[int] = Counter()
    last = 0
    for packet in trace.packet:
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert packet.timestamp >= last
        last = packet.timestamp
        open_slices[event.track_uuid] += {1: 1, 2: -1}.get(event.type, 0)
        assert 0 <= open_slices[event.track_uuid] <= 2
    assert last == 6_000_000_000
    assert not any(open_slices.values())


def test_perfetto_counters_have_values_and_leave_holes() -> None:
    series = TimelineSeries(name="GPU 0 power", values=(1.0, None, math.nan, 4.5), unit="watts")
    trace = decoded(render_perfetto(Timeline(times=(0.0, 1.0, 2.0, 3.0), gpus=(series,))))
    points = [(p.timestamp, p.track_event.double_counter_value) for p in trace.packet if p.HasField("track_event")]
    assert points == [(0, 1.0), (3_000_000_000, 4.5)]
    (track,) = [p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")]
    assert (track.name, track.counter.unit_name) == ("GPU 0 power", "watts")


def test_perfetto_takes_processes_without_a_pid_and_hostile_names() -> None:
    row = TimelineRow(pid=-1, tid=1 << 40, role="engine-loop", name="\x1b[31m\udcff", classes=("cpu",), waits=("",))
    trace = decoded(render_perfetto(Timeline(times=(0.0,), rows=(row,))))
    assert all("\x1b" not in name for name in tracks_of(trace).values())
    assert decoded(render_perfetto(Timeline(times=()))).packet == []


# --- speedscope


@pytest.fixture(scope="session")
def speedscope_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """speedscope's own page, of the npm package: from node_modules, or packed by npm."""
    local = Path(__file__).parents[2] / "node_modules" / "speedscope"
    if local.is_dir():
        return local
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm to get the package speedscope with, and no node_modules/speedscope")
    place = tmp_path_factory.mktemp("npm")
    done = subprocess.run(
        [npm, "pack", "--silent", "speedscope"], cwd=place, capture_output=True, timeout=120, check=False
    )
    found = list(place.glob("speedscope-*.tgz"))
    if done.returncode or not found:
        pytest.skip("npm gives no package speedscope here")
    with tarfile.open(found[0]) as archive:
        archive.extractall(place, filter="data")
    return place / "package"


def test_speedscope_is_valid_by_its_own_schema(speedscope_package: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    schema = json.loads((speedscope_package / "dist/release/file-format-schema.json").read_text())
    jsonschema.validate(json.loads(render_speedscope(situation(), timeline())), schema)


def test_speedscope_events_nest_and_samples_weigh_the_window() -> None:
    document = json.loads(render_speedscope(situation(), timeline()))
    count = len(document["shared"]["frames"])
    for profile in document["profiles"]:
        if profile["type"] == "sampled":
            assert len(profile["samples"]) == len(profile["weights"])
            assert sum(profile["weights"]) == pytest.approx(profile["endValue"] - profile["startValue"])
            assert all(0 <= index < count for stack in profile["samples"] for index in stack)
            continue
        stack, last = [], profile["startValue"]
        for event in profile["events"]:
            assert event["at"] >= last
            last = event["at"]
            stack.append(event["frame"]) if event["type"] == "O" else stack.remove(stack[-1])
        assert stack == []
    active = document["profiles"][document["activeProfileIndex"]]
    assert active["name"] == "engine-core 100: engine-loop (EngineCoreLoop), waits"


def opened_by_speedscope(document: str, package: Path, folder: Path) -> str:
    """What speedscope's own page shows of a document in a browser. Fails when the page complains."""
    packed = base64.b64encode(document.encode()).decode()
    script = folder / "load.js"
    script.write_text(f"speedscope.loadFileFromBase64('engine.speedscope.json', '{packed}')")
    page = (package / "dist/release/index.html").as_uri()
    shown = subprocess.run(
        [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
         f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000", f"{page}#localProfilePath={script}"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "Importing as speedscope json file" in shown.stderr
    assert not re.search(r"CONSOLE.*(?:Uncaught|Error|unrecognized)", shown.stderr)
    return shown.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_speedscopes_own_page_opens_it(speedscope_package: Path, tmp_path: Path) -> None:
    shown = opened_by_speedscope(render_speedscope(situation(), timeline()), speedscope_package, tmp_path)
    assert "engine-loop (EngineCoreLoop), waits" in shown
    assert re.search(r"Thread 100 .{0,8}EngineCoreLoop", shown)


# --- folded, and back


def places(of: Recording) -> Counter[tuple[int, int, tuple[tuple[str, str], ...]]]:
    return Counter(
        (p.pid, t.tid, tuple((f.function, f.file) for f in t.frames))
        for s in of.snapshots
        for p in s.processes
        for t in p.threads
        if t.frames
    )


@pytest.mark.parametrize("form", ["folded", "speedscope"])
def test_our_own_reader_reads_the_stacks_back(form: str) -> None:
    whole = situation()
    text = render_folded(whole) if form == "folded" else render_speedscope(whole, timeline(whole))
    back = read([("export", io.BytesIO(text.encode()))])
    assert set(places(back)) == set(places(whole))
    names = {t.name for s in back.snapshots for p in s.processes for t in p.threads}
    assert names == {"EngineCoreLoop", "OutputProcessor", "IPCLoop"}


def test_folded_counts_snapshots_and_keeps_its_fields_apart() -> None:
    lines = render_folded(situation()).splitlines()
    assert [line for line in lines if line.endswith(" 4") and "EngineCoreLoop" in line]
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 18
    whole = situation()
    odd = msgspec.structs.replace(whole.processes[0], title='a;b" 7\nprocess 9')
    text = render_folded(msgspec.structs.replace(whole, processes=(odd,)))
    assert all(line.startswith('process 100:"a,b" 7 process 9";thread (') for line in text.splitlines())
    assert render_folded(Recording()) == ""
