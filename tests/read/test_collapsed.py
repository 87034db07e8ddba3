from collections import Counter

from enginectl.read import collapsed


def shares(recording, tid):
    """How often each innermost function stands on top of this thread, over the snapshots; None when not running."""
    seen = Counter()
    for snapshot in recording.snapshots:
        for process in snapshot.processes:
            for thread in process.threads:
                if thread.tid == tid:
                    seen[thread.frames[0].function if thread.frames else None] += 1
    return seen


def test_raw_stacks_become_snapshots_with_their_shares(reader):
    recording = reader.fixture("profile.raw.txt")
    assert [(p.pid, p.title) for p in recording.processes] == [(41, "python -m serve")]
    assert shares(recording, 41) == {"encode": 15, "wait": 5}
    assert shares(recording, 55) == {"run": 5, None: 15}
    assert [f.function for f in recording.snapshots[0].processes[0].threads[0].frames] == ["encode", "loop", "<module>"]
    assert recording.understood.threads == 2


def test_stacks_without_threads_are_told_apart_by_their_root(reader):
    recording = reader.read("a (x.py:1);b (y.py:2) 30\nc (z.py:1);d (y.py:3) 10\n")
    assert shares(recording, -1) == {"b": 20}
    assert shares(recording, -2) == {"d": 7, None: 13}


def test_speedscope(reader):
    recording = reader.fixture("speedscope.json")
    assert [p.pid for p in recording.processes] == [41]
    assert shares(recording, 41) == {"wait": 15, "main": 5}
    assert recording.snapshots[0].processes[0].threads[0].name == "MainThread"


def test_prose_with_semicolons_is_no_stack():
    for body in ("a; b; c 17", "foo;bar", "f (a.py:1); g", "see (a); and (b) 1 of 2a", "; 7"):
        assert collapsed.parse_line(body) is None
