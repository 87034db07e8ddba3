import pytest

from enginectl.read import remarks


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "device-error"),
        ("[rank3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)", "collective-timeout"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "out-of-memory"),
        ("Fatal Python error: Segmentation fault", "fatal-signal"),
        ("all is well", None),
    ],
)
def test_death_notices(line, word):
    assert remarks.death_of(line) == word


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("No available shared memory broadcast block found in 60 seconds.", ("shm-broadcast-wait",)),
        ("ERROR Worker proc VllmWorker-1 died unexpectedly, shutting down executor.", ("worker-died",)),
        ("Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 1 reqs",
         ("throughput-zero", "requests-running", "requests-waiting")),
        ("Decode batch, #running-req: 3, gen throughput (token/s): 51.2, #queue-req: 0",
         ("throughput-moving", "requests-running")),
        ("Engine 000: Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs",
         ("throughput-zero", "requests-none")),
        ("a prompt about watch dogs", ()),
    ],
)  # fmt: skip
def test_class_words(line, words):
    assert remarks.words_of(line) == words


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Error: Permission denied (os error 13)", "permission"),
        ("ptrace: Operation not permitted.", "permission"),
        ("/bin/sh: 1: py-spy: not found", "no-tool"),
        ("Error: Failed to find python version from target process", "version"),
        ("Error: Function not implemented (os error 38)", "version"),
        ("Error: Timed out waiting for the process to stop", "stopped"),
        ("Error: something else", "other"),
        ("no trouble at all", None),
    ],
)
def test_tool_errors(line, kind):
    assert remarks.tool_error_of(line) == kind


def test_a_file_that_is_only_an_error(reader):
    recording = reader.fixture("tool-error.txt")
    assert recording.understood.tool_error == "permission"
    assert recording.gaps[0].remedy
    assert recording.snapshots[0].processes == ()


def test_an_error_beside_a_dump_is_a_gap_only(reader):
    text = "Pyspy failed to dump PID 7. Error: sh: py-spy: not found\n"
    recording = reader.read(text, "Thread 5 (idle)\n    f (a.py:1)\n")
    assert recording.understood.tool_error is None
    assert [(g.source, g.reason) for g in recording.gaps] == [("stacks of 7", "dump failed: no-tool")]
