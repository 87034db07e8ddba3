def test_outermost_first_is_turned_round(reader):
    recording = reader.fixture("pystack.txt")
    assert reader.brief(recording) == {
        -1: [
            (
                5001, "python", None, True,
                [
                    ("poll", "/lib64/libc.so.6", None, True),
                    ("main", "/srv/s.py", 5, False),
                    ("<module>", "/srv/s.py", 9, False),
                ],
            ),
            (5002, "helper", None, False, [("run", "/srv/t.py", 3, False)]),
        ]
    }  # fmt: skip
    assert recording.understood.torn == 0
