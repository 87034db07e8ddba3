def test_a_fatal_error_with_its_cpp_frames(reader):
    recording = reader.fixture("faulthandler-abort.txt")
    assert recording.understood.death_notice == "fatal-signal"
    assert (recording.processes[0].title, recording.processes[0].ranks) == ("sglang::scheduler_TP1", {"tp": 1})
    assert reader.brief(recording) == {
        -1: [
            (
                -1, None, None, None,
                [
                    ("c10::Error::Error(c10::SourceLocation, std::string)", "/opt/torch/lib/libc10.so", None, True),
                    ("ns::Watch::run()", "sglang::scheduler_TP1", None, True),
                ],
            ),
            (0x7F0000001640, None, True, None, []),
            (
                0x7F0000002640, "worker", None, None,
                [("wait", "/opt/py/threading.py", 359, False), ("run", "/srv/app.py", 4, False)],
            ),
            (0x7F0000003640, None, None, None, [("forward", "/srv/model.py", 70, False)]),
        ]
    }  # fmt: skip


def test_a_repeated_timer_is_a_later_sample(reader):
    one = 'Timeout (0:05:00)!\nThread 0x00007f0000000001 (most recent call first):\n  File "a.py", line 1 in {}\n'
    recording = reader.read(one.format("f") + one.format("g"), same_process=True)
    assert [reader.names(recording, n) for n in range(2)] == [{-1: [["f"]]}, {-1: [["g"]]}]


def test_two_processes_without_prefix_are_peers(reader):
    head = "Fatal Python error: Aborted\n\nThread 0x00007f00000000{:02x} (most recent call first):\n"
    frame = '  File "a.py", line 1 in f\n\n'
    recording = reader.read(head.format(1) + frame + head.format(2) + frame)
    assert reader.names(recording) == {-1: [["f"]], -2: [["f"]]}


def test_pieces_of_lines_count_as_torn(reader):
    understood = reader.fixture("garbled.txt").understood
    assert understood.torn == 3
    assert understood.frames == 2


def test_a_dump_that_begins_in_pieces(reader):
    text = 'numpy.core  File "a.py", line 1 in f\n  File "b.py", line 2 in g\n  File "c.py, line 4 in h\n'
    understood = reader.read(text).understood
    assert (understood.torn, understood.frames) == (2, 1)


def test_the_report_of_a_test_timeout(reader):
    text = (
        "+++++++++++++++++++++++++++++++++++ Timeout ++++++++++++++++++++++++++++++++++++\n"
        "~~~~~~~~~~~~~~~~~~~~ Stack of Thread-1 (1234) ~~~~~~~~~~~~~~~~~~~~~\n"
        '  File "/a.py", line 3, in outer\n    inner()\n  File "/a.py", line 9, in inner\n    wait()\n'
    )
    assert reader.brief(reader.read(text)) == {
        -1: [(1234, "Thread-1", None, None, [("inner", "/a.py", 9, False), ("outer", "/a.py", 3, False)])]
    }


def test_an_interrupt_by_hand_is_weak_evidence(reader):
    recording = reader.fixture("interrupt.txt")
    assert reader.names(recording) == {12: [["dequeue", "<module>"]]}
    assert recording.understood.formats == ("traceback",)
    assert recording.understood.death_notice is None


def test_logger_heads_on_every_line_of_a_traceback(reader):
    head = "(EngineCore pid=12) ERROR 11-10 09:50:25 [core.py:710] "
    lines = [
        "Traceback (most recent call last):",
        '  File "/x.py", line 7, in run',
        "    step()",
        "RuntimeError: CUDA error: x",
    ]
    recording = reader.read("".join(f"{head}{line}\n" for line in lines))
    assert reader.names(recording) == {12: [["run"]]}
    assert recording.understood.death_notice == "device-error"


def test_an_exception_is_no_stack_beside_a_dump(reader):
    trace = 'Traceback (most recent call last):\n  File "/a.py", line 3, in handler\n    x()\nValueError: bad\n'
    assert reader.read(trace).understood.death_notice == "exception"
    recording = reader.read(trace + 'Thread 5 (idle): "MainThread"\n    wait (q.py:1)\n')
    assert reader.names(recording) == {5: [["wait"]]}
    assert recording.understood.death_notice is None
