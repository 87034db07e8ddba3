"""The parts of a watch: ring, recorder, disk budget, actions, exporter."""

from __future__ import annotations

import http.server
import os
import socket
import sys
import threading
import urllib.request
from pathlib import Path

import msgspec
import pytest
from tests.situations import FORWARD, LOOP_IDLE, T, engine, recording

from enginectl.diagnose.diagnose import diagnose, measures_of
from enginectl.errors import UsageError
from enginectl.knowledge.loader import load
from enginectl.model.observed import GpuSample, ProcessFact, ProcessSample, Recording, Snapshot
from enginectl.read import read
from enginectl.watch.actions import MAX_RUNNING, Runner
from enginectl.watch.exporter import Board, picture_of, serve
from enginectl.watch.limits import DiskBudget, PerHour
from enginectl.watch.recorder import Recorder
from enginectl.watch.ring import Ring
from enginectl.watch.triggers import CommandAction, WebhookAction

KNOWLEDGE = load("")


def filled(seconds: int, keep: float = 60.0, start: float = 1000.0) -> Ring:
    ring = Ring(keep)
    seen = recording(engine(T("EngineCoreLoop", [FORWARD])), samples=1)
    ring.begin(msgspec.structs.replace(seen, target_pid=100, snapshots=()))
    for at in range(seconds):
        ring.add(seen.snapshots[0], start + at)
    return ring


# --- the ring


def test_the_ring_keeps_the_last_seconds_on_an_axis_of_its_own() -> None:
    ring = filled(100)
    assert len(ring) == 61
    whole = ring.recording()
    assert (whole.snapshots[0].offset_seconds, whole.snapshots[-1].offset_seconds) == (0.0, 60.0)
    assert whole.wall_seconds == 60.0
    assert [s.offset_seconds for s in ring.recording(2.5).snapshots] == [0.0, 1.0, 2.0]
    assert whole.processes[0].pid == 100


def test_parked_threads_share_one_copy_of_their_stack() -> None:
    ring = Ring(60)
    for at in range(3):
        seen = recording(engine(T("EngineCoreLoop", [FORWARD])), samples=1)
        ring.add(seen.snapshots[0], float(at))
    stacks = [s.processes[0].threads[0].frames for s in ring.recording().snapshots]
    assert stacks[0] is stacks[1] is stacks[2]


def test_facts_of_processes_go_with_their_last_snapshot() -> None:
    ring = Ring(10)
    for number in range(30):
        ring.begin(Recording(processes=(ProcessFact(pid=number + 1),)))
        ring.add(Snapshot(offset_seconds=0.0, processes=(ProcessSample(pid=number + 1),)), float(number))
    assert len(ring.recording().processes) == 11
    assert len(ring.head().processes) <= 13


# --- recordings within a budget


def test_a_recording_holds_what_was_before_and_what_comes_after(tmp_path: Path) -> None:
    ring, recorder = filled(30, keep=10), Recorder(DiskBudget(tmp_path, 1 << 20))
    name = recorder.start("hung", ring, ring.head(), after_seconds=2.0)
    assert recorder.start("hung", ring, ring.head(), after_seconds=2.0) == "", "one at a time for each trigger"
    for at in (1030.0, 1031.0, 1032.0):
        recorder.add(ring.add(ring.recording().snapshots[-1], at))
    with (tmp_path / name).open("rb") as stream:
        seen = read([(name, stream)])
    assert [s.offset_seconds for s in seen.snapshots] == [float(n) for n in range(13)]
    assert seen.gaps == ()
    assert "saved by trigger hung" in seen.notes
    assert any("is complete: 13 snapshots" in line for line in recorder.ended)


def test_the_oldest_own_files_go_first_and_no_other_file_ever(tmp_path: Path) -> None:
    budget = DiskBudget(tmp_path, 2500)
    own = []
    for number in range(5):
        path = budget.new_path("hung")
        path.write_bytes(b"x" * 1000)
        os.utime(path, (number, number))
        own.append(path)
    assert len(set(own)) == 5
    kept = tmp_path / "kept"
    os.link(own[0], kept)
    others = [tmp_path / "mine.ecrec", tmp_path / "enginectl-watch-20260101T000000Z-hung.ecrec.bak"]
    for path in others:
        path.write_bytes(b"y" * 5000)
        os.utime(path, (0, 0))
    link = tmp_path / "enginectl-watch-20200101T000000Z-link.ecrec"
    link.symlink_to(others[0])
    assert budget.make_room(frozenset({own[1]})) == (own[2], own[3])
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        p.name for p in (own[0], own[1], own[4], kept, link, *others)
    )
    assert DiskBudget(tmp_path / "none", 1).make_room(frozenset()) == ()


def test_one_recording_alone_cannot_pass_the_budget(tmp_path: Path) -> None:
    ring, recorder = filled(30, keep=10), Recorder(DiskBudget(tmp_path, 1200))
    name = recorder.start("hung", ring, ring.head(), after_seconds=1e6)
    for at in range(1030, 1400):
        recorder.add(ring.add(ring.recording().snapshots[-1], float(at)))
    assert (tmp_path / name).exists() is False
    assert any("deleted" in line for line in recorder.ended)


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    recorder = Recorder(DiskBudget(tmp_path / "gone", 1 << 20))
    ring = filled(3)
    assert recorder.start("hung", ring, ring.head(), after_seconds=1) == ""
    assert "cannot create" in recorder.ended[0]


def test_an_hour_frees_what_was_granted() -> None:
    limit = PerHour(2)
    limit.grant(0.0)
    limit.grant(10.0)
    assert not limit.allows(3599.0)
    assert limit.allows(3600.0)
    assert not PerHour(0).allows(0.0)


# --- actions


def ended(runner: Runner, wait_until, count: int = 1) -> list[str]:
    outcomes: list[str] = []

    def enough() -> bool:
        outcomes.extend(runner.poll())
        return len(outcomes) >= count

    wait_until(enough)
    return outcomes


def test_a_command_gets_its_words_and_no_shell(tmp_path: Path, wait_until) -> None:
    runner, out = Runner(), tmp_path / "out"
    script = "import os,sys; open(sys.argv[1],'w').write(os.environ['ENGINECTL_SUMMARY'] + sys.argv[2])"
    action = CommandAction(argv=(sys.executable, "-c", script, str(out), "$(id);*"))
    assert runner.start(action, {"summary": "`a` $B"}) == ""
    assert ended(runner, wait_until) == [f"{sys.executable}: exit 0"]
    assert out.read_text() == "`a` $B$(id);*"


def test_a_command_that_stays_is_ended_with_its_children(tmp_path: Path, wait_until) -> None:
    runner, out = Runner(), tmp_path / "pid"
    script = (
        "import subprocess,sys; c=subprocess.Popen(['sleep','600']); open(sys.argv[1],'w').write(str(c.pid)); c.wait()"
    )
    assert runner.start(CommandAction(argv=(sys.executable, "-c", script, str(out)), timeout_seconds=2.0), {}) == ""
    assert "its time was up" in ended(runner, wait_until)[0]
    wait_until(lambda: out.exists() and not _runs(int(out.read_text())))


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_what_cannot_be_started_is_told() -> None:
    assert "could not be started" in Runner().start(CommandAction(argv=("/no/such/program",)), {})


def test_too_many_at_once_are_refused_and_closing_ends_them() -> None:
    runner = Runner()
    for _ in range(MAX_RUNNING):
        assert runner.start(CommandAction(argv=("sleep", "600")), {}) == ""
    assert "refused" in runner.start(CommandAction(argv=("sleep", "600")), {})
    assert len(runner.poll(closing=True)) == MAX_RUNNING


@pytest.fixture
def receiver():
    got: list[tuple[str, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(302 if "moved" in self.path else 204)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()
        thread.join()


def test_a_webhook_posts_json_and_follows_no_redirect(receiver, wait_until) -> None:
    url, got = receiver
    runner = Runner()
    assert runner.start(WebhookAction(url=f"{url}/moved?a=1"), {"trigger": "hung"}) == ""
    assert ended(runner, wait_until) == ["http://127.0.0.1: status 302"]
    assert [(path, msgspec.json.decode(body)) for path, body in got] == [("/moved?a=1", {"trigger": "hung"})]


def test_a_webhook_without_an_answer_ends_in_its_time(wait_until) -> None:
    runner = Runner()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        assert runner.start(WebhookAction(url=url, timeout_seconds=0.3), {}) == ""
        assert len(ended(runner, wait_until)) == 1
    assert runner.start(WebhookAction(url=url, timeout_seconds=2), {}) == ""
    assert "refused" in ended(runner, wait_until)[0]
    wait_until(lambda: not any(t.name == "webhook" for t in threading.enumerate()))


# --- the exporter


@pytest.fixture
def served():
    pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    board = Board()
    close = serve(board, f"127.0.0.1:{port}")
    yield board, f"http://127.0.0.1:{port}/metrics"
    close()


def series(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_series_come_with_an_engine_and_go_with_it(served) -> None:
    board, url = served
    assert series(url)["enginectl_up"] == 0.0
    gpu = GpuSample(index=0, utilization_percent=40.0, memory_activity_percent=20.0)
    seen = recording(engine(T("EngineCoreLoop", [FORWARD, LOOP_IDLE, FORWARD, FORWARD])), samples=4, gpus=[gpu])
    measures = measures_of(seen, KNOWLEDGE)
    board.picture = picture_of(diagnose(seen, KNOWLEDGE), measures, 0.011, 0.1)
    board.fires["hung"] = 2
    shown = series(url)
    assert shown['enginectl_thread_state_ratio{role="engine-loop",wait_class="cpu"}'] == 0.75
    assert shown['enginectl_thread_state_ratio{role="engine-loop",wait_class="idle"}'] == 0.25
    assert sum(1 for name in shown if name.startswith("enginectl_finding{")) >= 1
    assert shown["enginectl_up"] == 1.0
    assert shown["enginectl_device_busy_ratio"] == 0.4
    assert shown["enginectl_target_pause_seconds"] == 0.011
    assert shown["enginectl_cpu_seconds_total"] > 0
    board.picture = None
    after = series(url)
    assert not [
        name
        for name in after
        if name.startswith(("enginectl_thread", "enginectl_find", "enginectl_target", "enginectl_dev"))
    ]
    assert after['enginectl_trigger_fires_total{trigger="hung"}'] == 2.0


def test_an_address_that_cannot_be_used_is_a_usage_error(served) -> None:
    _, url = served
    for listen in ("127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", url.split("/")[2]):
        with pytest.raises(UsageError):
            serve(Board(), listen)
