import pytest

from enginectl.read import bare


def test_hand_made_forms(reader):
    recording = reader.fixture("bare-forms.txt")
    assert [(p.pid, p.title, p.ranks) for p in recording.processes] == [
        (77, "VLLM::EngineCore", {}), (-1, "Rank 3", {}), (-2, "VLLM::Worker_TP4", {"tp": 4})
    ]  # fmt: skip
    brief = reader.brief(recording)
    assert [f[0] for f in brief[77][0][4]] == ["schedule", "step", "run_busy_loop"]
    assert [f[0] for f in brief[-1][0][4]] == ["all_reduce", "step", "run_busy_loop"]
    assert brief[-2][0][4] == [
        ("spin_wait", "", None, False),
        ("take", "pkg/ring.py", 44, False),
        ("", "pkg/ring.py", 60, False),
        ("worker_loop", "pkg/loop.py", 9, False),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "The tokenizer maps text -> ids -> text again.",
        "GET /health -> 200",
        "def f(x: int) -> int:",
        "Overall throughput is fine (see the graph)",
        "run_busy_loop",
        "INFO 01-02 03:04:05 [core.py:58] Initializing an engine (core.py:58)",
        "WARNING something took long (worker.py:12)",
        "tensor([[1, 2], [3, 4]])",
        "my_function",
    ],
)
def test_prose_gives_no_thread(reader, line):
    assert reader.read(f"hello\n{line}\nbye\n").understood.threads == 0


def test_stacks_without_header_end_at_blank_lines(reader):
    recording = reader.read("a (x.py:1)\nb (y.py:2)\n\nc (z.py:3)\n")
    assert reader.names(recording) == {-1: [["a", "b"], ["c"]]}


def test_lone_functions_before_a_frame_belong_to_it(reader):
    assert reader.names(reader.read("schedule_batch\nexecute\nb (y.py:2)\nrun_loop\n")) == {
        -1: [["schedule_batch", "execute", "b", "run_loop"]]
    }


def test_a_counted_tree_is_outermost_first(reader):
    text = "    120  execute_model\n          finish_step (a.py)\n          Waiter.result (b.py:4) (99.0% of samples)\n"
    assert reader.names(reader.read(text)) == {-1: [["Waiter.result", "finish_step", "execute_model"]]}


def test_chains_in_either_direction():
    names = [f.function for f in bare.parse_chain("Stack: all_reduce → forward_step → event_loop")]
    assert names == ["all_reduce", "forward_step", "event_loop"]
    assert [f.function for f in bare.parse_chain("main => step_once => all_reduce")] == [
        "all_reduce",
        "step_once",
        "main",
    ]
    assert [f.function for f in bare.parse_chain("recv (a.py:3) <- loop (b.py:4)")] == ["recv", "loop"]
    assert bare.parse_chain("a -> b") is None


def test_a_lone_place_is_a_frame_without_function(reader):
    assert reader.brief(reader.read("ring.py:136\n"))[-1][0][4] == [("", "ring.py", 136, False)]


def test_places_before_or_behind_the_function(reader):
    recording = reader.read("core.py:9 step\nring.py:4 in take\nrun_core at core.py:11\n")
    assert reader.brief(recording)[-1][0][4] == [
        ("step", "core.py", 9, False), ("take", "ring.py", 4, False), ("run_core", "core.py", 11, False)
    ]  # fmt: skip


def test_labelled_chains_and_thread_names_as_headings(reader):
    chains = reader.read("rank0: all_reduce -> forward -> step_loop\nrank1: recv_any -> step_loop\n")
    assert [p.title for p in chains.processes] == ["rank0", "rank1"]
    named = reader.read("PID 300\nMainThread:\n  recv (a.py:1)\nThread-3 (forward):\n  step (a.py:4)\n")
    assert [(t[0], t[1]) for t in reader.brief(named)[300]] == [(300, "MainThread"), (-2, "Thread-3 (forward)")]


def test_the_pid_of_the_command_line_is_used(reader):
    assert list(reader.names(reader.read("$ py-spy dump --pid 812\nwork (a.py:1)\n"))) == [812]
