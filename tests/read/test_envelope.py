import gzip
import io

import pytest

from enginectl.errors import UnreadableInput
from enginectl.read import envelope, read

BODY = (
    'Process 88: VLLM::Worker_TP1\nPython v3.12.1 (/usr/bin/python3.12)\n\nThread 88 (active): "MainThread"\n'
    "    step (a/b.py:3)\n    <module> (<string>:1)\n"
)
WRAPPED = {
    "compose": lambda line: f"server-1  | {line}",
    "ray": lambda line: f"(WorkerDict pid=3, ip=10.0.0.1) {line}",
    "vllm": lambda line: f"(EngineCore_DP0 pid=123) {line}",
    "colour": lambda line: f"\x1b[36m(Worker pid=4)\x1b[0m {line}\x1b[0m",
    "colour as text": lambda line: f"\\u001b[36m{line}\\u001b[0m",
    "caret colour": lambda line: f"^[[36m{line}^[[0m",
    "journal": lambda line: f"Jan 02 03:04:05 host unit[123]: {line}",
    "iso": lambda line: f"2026-01-02T03:04:05.136395428Z {line}",
    "cri": lambda line: f"2026-01-02T03:04:05.136395428+00:00 stdout F {line}",
    "quote": lambda line: f"> {line}",
    "quotes": lambda line: f"> > {line}",
    "code": lambda line: f"    {line}",
    "cr": lambda line: f"{line}\r",
    "literal cr": lambda line: f"{line}^M",
    "trailing": lambda line: f"{line}   ",
    "kubectl": lambda line: f"[pod/serve-0/engine] {line}",
    "rank": lambda line: f"[rank3]: {line}",
    "nested": lambda line: f"2026-01-02T03:04:05Z server-1  | (EngineCore pid=9) {line}",
    "entities": lambda line: line.replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;"),
    "cells": lambda line: f"<tr><td>{line.replace('<', '&lt;').replace('>', '&gt;')}</td></tr>",
    "json log": lambda line: '{"log":"' + line.replace('"', '\\"') + '\\n","stream":"stdout"}',
}


@pytest.mark.parametrize("wrap", WRAPPED, ids=str)
def test_every_envelope_gives_the_same_process(reader, wrap):
    text = "\n".join(WRAPPED[wrap](line) for line in BODY.splitlines()) + "\n"
    recording = reader.read(text)
    (process,) = recording.processes
    assert (process.pid, process.title, process.python_version, process.ranks) == (
        88, "VLLM::Worker_TP1", "3.12.1", {"tp": 1}
    )  # fmt: skip
    assert reader.brief(recording) == {
        88: [(88, "MainThread", True, False, [("step", "a/b.py", 3, False), ("<module>", "<string>", 1, False)])]
    }
    assert recording.understood.torn == 0


@pytest.mark.parametrize(
    "encode",
    [
        gzip.compress,
        lambda raw: raw.decode().encode("utf-16"),
        lambda raw: b"\xef\xbb\xbf" + raw,
        lambda raw: raw.replace(b"\n", b"\r\n"),
        lambda raw: b"```text\n" + raw + b"```\n",
        lambda raw: raw.replace(b"\n", b"\\n"),
        lambda raw: raw.replace(b"<", b"&lt;").replace(b"\n", b"<br />"),
        lambda raw: gzip.compress(raw[:60]) + gzip.compress(raw[60:]),
    ],
)
def test_every_encoding_gives_the_same_process(reader, encode):
    assert reader.names(reader.read(encode(BODY.encode()))) == {88: [["step", "<module>"]]}


def test_a_cut_gzip_file_gives_what_came_before(reader):
    raw = b"".join(b"Thread %d (idle)\n    f (a.py:%d)\n" % (i, i * 7919 % 9973) for i in range(4000))
    recording = reader.read(gzip.compress(raw)[:-2000])
    assert 100 < recording.understood.threads < 4000


def test_what_only_looks_like_gzip_is_unreadable():
    with pytest.raises(UnreadableInput, match="dump"):
        read([("dump.gz", io.BytesIO(b"\x1f\x8b" + b"nonsense" * 9))])


def test_a_file_that_fails_to_read_is_unreadable():
    class Broken(io.BytesIO):
        def read(self, *_):
            raise OSError("no")

    with pytest.raises(UnreadableInput):
        read([("dump", Broken())])


def test_the_logger_head_tells_the_ranks(reader):
    recording = reader.fixture("pyspy-compose-ranks.txt")
    assert {p.pid: p.ranks for p in recording.processes} == {610: {"dp": 1, "tp": 2}, 611: {"tp": 3}}
    assert reader.names(recording) == {610: [["all_reduce", "event_loop"]], 611: [["recv"]]}
    assert recording.notes == ("watchdog-timeout",)


def test_writers_are_told_apart_by_their_prefix(reader):
    recording = reader.fixture("faulthandler-actor-lanes.txt")
    assert {p.pid: (p.title, p.ranks) for p in recording.processes} == {
        71: ("VLLM::EngineCore_DP0", {"dp": 0}),
        72: ("VLLM::EngineCore_DP1", {"dp": 1}),
    }
    assert reader.names(recording) == {71: [["step", "loop"]], 72: [["wait_peers", "loop"]]}
    assert recording.understood.torn == 0


def test_writers_are_told_apart_by_tags_on_every_line(reader):
    lines = []
    for line in BODY.splitlines():
        lines += [f"[2026-01-02 03:04:05 TP0] {line}", f"[2026-01-02 03:04:05 TP1] {line.replace('88', '99')}"]
    recording = reader.read("\n".join(lines))
    assert reader.names(recording) == {88: [["step", "<module>"]], 99: [["step", "<module>"]]}


def test_markup_of_issue_pages(reader):
    recording = reader.fixture("issue.html.txt")
    assert reader.names(recording) == {88: [["lambda_step", "<module>"]]}
    assert "secret" not in repr(recording)


def test_a_line_is_bounded(reader):
    text = BODY + "x" * 3_000_000 + "\n" + BODY.replace("88", "99")
    assert reader.names(reader.read(text)) == {88: [["step", "<module>"]], 99: [["step", "<module>"]]}


def test_times_of_the_log_give_the_distance_of_samples(reader):
    later = BODY.replace("step", "other")
    text = f"[2026-01-02 03:04:05] Pyspy dump for PID 88:\n{BODY}[2026-01-02 03:04:35] Pyspy dump for PID 88:\n{later}"
    assert [s.offset_seconds for s in reader.read(text).snapshots] == [0.0, 30.0]


def test_control_of_plain_text():
    assert envelope.strip(b"  no prefix here").text == "  no prefix here"
    assert envelope.strip(b"") == envelope.Stripped("")
