from collections import Counter


def test_rows_become_shares_of_the_time(reader):
    recording = reader.fixture("top.txt")
    (process,) = recording.processes
    assert (process.title, process.python_version) == ("python -m serve", "3.11.4")
    tops = Counter(
        (t.tid, t.frames[0].function)
        for s in recording.snapshots
        for p in s.processes
        for t in p.threads
        if t.active and t.frames
    )
    assert tops == {(-1, "monitor"): 20, (-2, "encode"): 16, (-2, "loop"): 4}
    assert recording.understood.formats == ("py-spy-top",)
    assert recording.understood.frames == 2


def test_a_table_in_a_log_with_prefixes(reader):
    text = (
        "x-1 |  %Own   %Total  OwnTime  TotalTime  Function (filename)\n"
        "x-1 | 50.00%  50.00%    1.00s     2.00s   f (a.py)\n"
    )
    recording = reader.read(text)
    assert recording.snapshots[0].processes[0].threads[0].frames[0].function == "f"
