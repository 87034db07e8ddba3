import io

import pytest

from enginectl.diagnose.diagnose import diagnose
from enginectl.knowledge.loader import load
from enginectl.read import pyspy_text, read

SYMBOL = "ns::Channel<int, std::vector<long> >::wait(std::chrono::duration<long>)"


def test_native_frames_locals_hex_ids_and_missing_names(reader):
    recording = reader.fixture("pyspy-native-locals.txt")
    (process,) = recording.processes
    assert (process.pid, process.title, process.python_version) == (4100, "VLLM::EngineCore_DP1", "3.12.4")
    assert (process.ranks, process.command, process.engine, process.role) == ({"dp": 1}, (), None, None)
    assert reader.brief(recording) == {
        4100: [
            (
                4100, "MainThread", False, False,
                [
                    ("0x7f00aa001d71", "libc.so.6", None, True),
                    ("pthread_cond_timedwait", "libc.so.6", None, True),
                    (SYMBOL, "libchannel.so", None, True),
                    ("take", "queues/take.py", 17, False),
                    ("run_loop", "core/loop.py", 90, False),
                    ("<module>", "<string>", 1, False),
                ],
            ),
            (
                0x7F00AA00B640, "Thread-1 (drain)", True, True,
                [("drain", "queues/drain.py", 8, False), ("_bootstrap", "threading.py", 1032, False)],
            ),
            (4177, None, True, False, [("spin", "spin.py", None, False)]),
        ]
    }  # fmt: skip
    assert recording.understood.formats == ("py-spy",)
    assert (recording.understood.torn, recording.understood.lines, recording.understood.lines_skipped) == (0, 20, 1)


def test_old_tabbed_form_without_names(reader):
    recording = reader.read("Thread 0x7F00AA (active)\n\t work (a.py:1)\n\t main (b.py:2)\n")
    assert reader.brief(recording) == {
        -1: [(0x7F00AA, None, True, False, [("work", "a.py", 1, False), ("main", "b.py", 2, False)])]
    }


def test_several_processes_and_full_command_lines(reader):
    text = (
        "Process 7: python -m serve --port 1 --api-key sk-abc --max-num-seqs=4 {json: 1}\n"
        "Python v3.11.4 (/usr/bin/python3)\n"
        '\nThread 7 (idle): "MainThread"\n    a (x.py:1)\n'
        "Process 9: ray::RayWorkerWrapper.execute_method()\nPython v3.11.4 (/usr/bin/python3)\n"
        '\nThread 9 (idle): "MainThread"\n    b (x.py:2)\n'
    )
    recording = reader.read(text)
    first, second = recording.processes
    assert first.command[:3] == ("python", "-m", "serve")
    assert first.flags == {"--port": "1", "--api-key": "[redacted]", "--max-num-seqs": "4"}
    assert "sk-abc" not in first.title and recording.redactions
    assert (second.title, second.command) == ("ray::RayWorkerWrapper.execute_method()", ())
    assert reader.names(recording) == {7: [["a"]], 9: [["b"]]}


def test_a_forked_child_is_cut_below_its_launch(reader):
    text = (
        'Process 5: x/y\nThread 5 (idle): "MainThread"\n    poll (a.py:1)\n'
        "    _bootstrap (multiprocessing/process.py:315)\n    _launch (multiprocessing/popen_fork.py:71)\n"
        "    start (multiprocessing/process.py:121)\n    main (serve.py:3)\n"
    )
    assert reader.names(reader.read(text)) == {5: [["poll", "_bootstrap"]]}
    qualified = text.replace(" _bootstrap", " BaseProcess._bootstrap").replace("_launch", "Popen._launch")
    assert reader.names(reader.read(qualified)) == {5: [["poll", "BaseProcess._bootstrap"]]}
    parent = 'Thread 5 (idle): "MainThread"\n    _launch (multiprocessing/popen_fork.py:66)\n    start (a.py:1)\n'
    assert reader.names(reader.read(parent)) == {5: [["_launch", "start"]]}


def test_values_of_variables_are_no_lines_of_the_dump(reader):
    text = (
        'Thread 9 (active): "MainThread"\n    f (a.py:1)\n        Locals:\n            p: Thread 1 (idle)\n'
        '            q: "x\\nThread 2 (idle)\\n  y (z.py:1)"\n            r: g (b.py:2)\n    g (a.py:2)\n'
    )
    assert reader.names(reader.read(text)) == {9: [["f", "g"]]}


def test_cut_last_line_and_wrapped_line(reader):
    head = 'Thread 5 (active): "MainThread"\n    a (x.py:1)\n'
    cut = reader.read(head + "    run (flash/prefill.")
    assert reader.names(cut) == {5: [["a", "run"]]}
    assert cut.understood.torn == 1
    wrapped = reader.read(head + "    run (flash/prefi\nll.py:7)\n    main (y.py:2)\n")
    assert reader.brief(wrapped)[5][0][4][1:] == [("run", "flash/prefill.py", 7, False), ("main", "y.py", 2, False)]
    assert wrapped.understood.torn == 0


def test_a_wrapped_symbol_is_joined(reader):
    text = (
        'Thread 5 (active): "M"\n    a (liba.so)\n    ns::wrap<ns::very<long>,\nint>::call (libb.so)\n    m (y.py:2)\n'
    )
    recording = reader.read(text)
    assert [f.function for f in recording.snapshots[0].processes[0].threads[0].frames] == [
        "a", "ns::wrap<ns::very<long>,int>::call", "m"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "tid", "name", "active", "gil"),
    [
        ('Thread 41 (idle): "MainThread"', 41, "MainThread", False, False),
        ('Thread 0xFFFC68497C40 (active+gil): "a "b" c"', 0xFFFC68497C40, 'a "b" c', True, True),
        ("Thread 12 (idle)", 12, None, False, False),
        ('Thread (active): "MainThread"', None, "MainThread", True, False),
        ('Thread X (idle) "MainThread"   <- stuck', None, "MainThread", False, False),
        ('Thread 41 (idle): "Main', 41, "Main", False, False),
    ],
)
def test_thread_headers(text, tid, name, active, gil):
    head = pyspy_text.parse_thread(text)
    assert (head.tid, head.name, head.active, head.holds_gil) == (tid, name, active, gil)


@pytest.mark.parametrize(
    "text",
    ["Thread safety (idle) matters", "Thread 1", "Thread 12 finished", "Threads (idle): 3", "Thread 1 (running)"],
)
def test_prose_is_no_thread_header(text):
    assert pyspy_text.parse_thread(text) is None


@pytest.mark.parametrize(
    "body", ["see the notes (below)", "a b c (x.py:1)", "f()", "x ()", "step (1.5 s)", "(a.py:3)", "foo (bar baz)"]
)
def test_prose_is_no_frame(body):
    assert pyspy_text.parse_frame(body) is None


def test_omitted_parts_of_a_path_keep_what_follows(reader):
    assert pyspy_text.split_place("…/attention/layer.py:9") == ("attention/layer.py", 9)
    assert pyspy_text.split_place("pkg/.../moe/x.py") == ("moe/x.py", None)
    assert pyspy_text.split_place("...") == ("", None)


def test_control_characters_never_survive(reader):
    recording = reader.read(
        'Process 1: a::b\x1b]0;x\x07\u202e\nThread 1 (idle): "N\x1b[31m\x07\x9b1"\n    f\x08 (a.py:1)\n'
    )
    text = repr(recording)
    for bad in ("\\x1b", "\\x07", "\\x08", "\\x9b", "\\u202e"):
        assert bad not in text
    assert recording.snapshots[0].processes[0].threads[0].name is not None


RAY = """Process 29748: ray::RayWorkerWrapper.execute_method
Python v3.11.7 (/usr/bin/python3.11)

Thread 29748 (idle): "MainThread"
{inner}    Worker.main_loop (ray/_private/worker.py:1069)
    <module> (ray/_private/workers/default_worker.py:323)
"""
TASK = """    RayWorkerWrapper.execute_method (mine.py:7)
    FunctionActorManager._make_actor_method_executor.<locals>.actor_method_executor (ray/_private/function_manager.py:740)
"""


def test_a_ray_process_rests_in_its_main_loop_and_works_above_it() -> None:
    seen = [
        diagnose(read([("dump", io.BytesIO(RAY.format(inner=inner).encode()))]), load()).processes[0].threads[0]
        for inner in ("", TASK)
    ]
    assert [thread.wait_point for thread in seen] == ["torch.ray.idle", "unknown"]
