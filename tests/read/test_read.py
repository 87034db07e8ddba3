"""Several files, whole logs, honesty about what was understood."""

import io

import pytest

from enginectl.errors import UsageError
from enginectl.read import read

ONE = 'Process {0}: VLLM::Worker_TP{1}\nThread {0} (idle): "MainThread"\n    {2} (a.py:1)\n'
BLIND = "Thread 0x7f0000001640 (idle)\n    {} (a.py:1)\n"


def test_the_same_pid_again_is_later_and_others_are_peers(reader):
    recording = reader.read(ONE.format(1, 0, "f"), ONE.format(2, 1, "g"), ONE.format(2, 1, "h"), ONE.format(1, 0, "i"))
    assert [reader.names(recording, n) for n in range(2)] == [{1: [["f"]], 2: [["g"]]}, {2: [["h"]], 1: [["i"]]}]
    assert len(recording.snapshots) == 2
    assert recording.understood.processes == 2


def test_files_without_pid_are_peers_or_samples(reader):
    peers = reader.read(BLIND.format("f"), BLIND.format("g"))
    assert reader.names(peers) == {-1: [["f"]], -2: [["g"]]}
    samples = reader.read(BLIND.format("f"), BLIND.format("g"), same_process=True)
    assert [reader.names(samples, n) for n in range(2)] == [{-1: [["f"]]}, {-1: [["g"]]}]


def test_the_same_thread_again_without_header_is_a_later_sample(reader):
    recording = reader.read(BLIND.format("f") + BLIND.format("g"))
    assert [reader.names(recording, n) for n in range(2)] == [{-1: [["f"]]}, {-1: [["g"]]}]


def test_a_main_thread_with_a_system_id_carries_the_pid(reader):
    assert list(reader.names(reader.read('Thread 55 (idle): "MainThread"\n    f (a.py:1)\n'))) == [55]


def test_log_lines_between_frames_are_torn_and_do_not_end_the_stack(reader):
    text = (
        'Thread 5 (idle): "MainThread"\n    a (x.py:1)\nINFO 01-02 03:04:05 [x.py:1] GET /health 200\n    b (y.py:2)\n'
        "Some prose.\n"
    )
    recording = reader.read(text)
    assert reader.names(recording) == {5: [["a", "b"]]}
    assert recording.understood.torn == 1


def test_prose_ends_a_stack(reader):
    text = 'Thread 5 (idle): "MainThread"\n    a (x.py:1)\nand the other one stands at\n    b (y.py:2)\n'
    assert reader.names(reader.read(text)) == {5: [["a"], ["b"]]}


@pytest.mark.parametrize("lines", [100, 40_000])
def test_a_dump_in_a_long_log_is_found_and_nothing_else_kept(reader, lines):
    noise = "".join(f"INFO 01-02 03:04:05 [a.py:{i}] prompt-secret {i} input_ids=[{i}, 2, 3]\n" for i in range(lines))
    recording = reader.read(
        noise + "(EngineCore pid=9) " + BLIND.format("f").replace("\n", "\n(EngineCore pid=9) ", 1) + noise
    )
    assert reader.names(recording) == {9: [["f"]]}
    assert recording.understood.lines == 2 * lines + 2
    assert recording.understood.lines_skipped == 2 * lines
    assert "secret" not in repr(recording)


def test_empty_files_and_no_files():
    recording = read([("empty", io.BytesIO(b""))])
    assert recording.made_by == "read" and recording.understood.threads == 0 and len(recording.snapshots) == 1
    with pytest.raises(UsageError):
        read([])
