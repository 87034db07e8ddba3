import pytest

from enginectl.read import gdb


def test_threads_wrapped_frames_and_python_frames(reader):
    recording = reader.fixture("gdb-threads.txt")
    assert reader.brief(recording) == {
        900: [
            (
                900, "python", None, None,
                [
                    ("poll", "/lib64/libc.so.6", None, True),
                    ("wait_once", "/srv/loop.py", 12, False),
                    ("main", "/srv/loop.py", 30, False),
                ],
            ),
            (
                901, "pt_autograd_0", None, None,
                [
                    ("futex_wait", "/lib64/libc.so.6", None, True),
                    ("ns::f(int, ns::T<int>*)", "/src/a.cpp", 10, True),
                    ("??", "/lib64/libcuda.so.1", None, True),
                ],
            ),
        ]
    }  # fmt: skip
    assert recording.understood.torn == 0


@pytest.mark.parametrize(
    ("body", "function", "file", "line"),
    [
        ("#0  poll () from /lib/libc.so.6", "poll", "/lib/libc.so.6", None),
        ("#7  0x1 in std::thread::run<ns::A()::{lambda(int)#1}> (this=0x1) at x/t.cc:9",
         "std::thread::run<ns::A()::{lambda(int)#1}>", "x/t.cc", 9),
        ("#3  (anonymous namespace)::wait (s=...) at a.cpp:1", "(anonymous namespace)::wait", "a.cpp", 1),
        ("#1  0x2 in f (cb=0x3 <g(int)>, n=4)", "f", "", None),
        ("#1  0x2 in f (cb=0x3 <g(int)>, n=", "f", "", None),
        ("#4  Frame 0x7f, for file /srv/q.py, line 12, in get (self=<Q>) at x.c:1", "get", "/srv/q.py", 12),
    ],
)  # fmt: skip
def test_frames(body, function, file, line):
    frame, _ = gdb.parse_frame(body)
    assert (frame.function, frame.file, frame.line) == (function, file, line)


def test_frames_without_any_thread_header(reader):
    recording = reader.read("#0  a () from x.so\n#1  b () at y.c:1\n#0  c () from x.so\n")
    assert reader.names(recording) == {-1: [["a", "b"], ["c"]]}


def test_python_traces_of_all_threads(reader):
    text = (
        'Thread 2 (Thread 0x7f0000001640 (LWP 42) "python"):\nTraceback (most recent call first):\n'
        "  Waiting for the GIL\n"
        '  File "a.py", line 1, in f\n    x()\n  File "a.py", line ?, in g\n    (failed to get frame line number)\n\n'
        'Thread 1 (Thread 0x7f0000000640 (LWP 41) "python"):\nTraceback (most recent call first):\n'
        '  File "b.py", line 2, in h\n'
    )
    assert reader.names(reader.read(text)) == {-1: [["f", "g"], ["h"]]}


def test_lists_of_threads_and_other_tools(reader):
    listed = '* 1    Thread 0x7f00 (LWP 55) "python" poll () from x.so\n'
    text = listed + 'Thread 1 (Thread 0x7f00 (LWP 55) "python"):\n#0  0x01 in poll () from x.so\n'
    assert reader.names(reader.read(text)) == {-1: [["poll"]]}
    assert reader.names(reader.read("TID 77:\n#0  0x00007f12 poll\n#1  0x00007f13 run\n")) == {-1: [["poll", "run"]]}


def test_the_pager_is_passed_over():
    assert gdb.without_pager("#1 --Type <RET> for more, q to quit, c to continue without paging--") == "#1 "
