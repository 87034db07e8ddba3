import gzip

import msgspec
import pytest

from enginectl.errors import UnreadableInput
from enginectl.model.observed import Frame, ProcessFact, ProcessSample, Recording, Snapshot, StatedFacts, ThreadSample
from enginectl.read import recording as format_


def sample(count=3):
    """A recording of one process with `count` snapshots."""
    frames = (Frame(function="step", file="/srv/core.py", line=3),)
    return Recording(
        host="box",
        target_pid=5,
        processes=(ProcessFact(pid=5, title="VLLM::EngineCore"),),
        snapshots=tuple(
            Snapshot(
                offset_seconds=float(n),
                processes=(ProcessSample(pid=5, threads=(ThreadSample(tid=5, frames=frames),)),),
            )
            for n in range(count)
        ),
    )


def test_a_recording_comes_back_unchanged(reader):
    raw = msgspec.json.encode(sample())
    assert reader.read(raw) == sample()
    assert reader.read(gzip.compress(raw)) == sample()
    assert reader.read(msgspec.json.format(raw)) == sample()


def test_a_cut_recording_ends_at_its_last_whole_snapshot(reader):
    raw = msgspec.json.encode(sample())
    cut = reader.read(raw[: raw.rindex(b"core.py")])
    assert len(cut.snapshots) == 2
    assert cut.snapshots == sample().snapshots[:2]
    assert cut.gaps == (format_.CUT,)


def test_another_schema_is_refused_with_its_number(reader):
    raw = b'{"schema_version": 99, ' + msgspec.json.encode(sample())[1:]
    with pytest.raises(UnreadableInput, match="99"):
        reader.read(raw)


def test_nothing_to_decode_is_unreadable(reader):
    with pytest.raises(UnreadableInput):
        reader.read(b'{"made_by": "observe", "proc')


def test_recordings_and_dumps_follow_each_other(reader):
    raw = msgspec.json.encode(sample(2))
    facts = StatedFacts(engine="vllm")
    both = reader.read(raw, raw, "Process 6: a::b\nThread 6 (idle)\n    f (a.py:1)\n", facts=facts)
    assert [s.offset_seconds for s in both.snapshots] == [0.0, 1.0, 1.0, 2.0, 2.0]
    assert [p.pid for p in both.processes] == [5, 6]
    assert both.stated == facts
