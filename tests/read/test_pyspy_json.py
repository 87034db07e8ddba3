from enginectl.read import pyspy_json


def test_several_arrays_behind_each_other(reader):
    recording = reader.fixture("pyspy.json")
    assert reader.brief(recording) == {
        41: [
            (
                41, "MainThread", False, False,
                [("poll", "/lib64/libc.so.6", None, True), ("<module>", "/srv/main.py", 9, False)],
            ),
            (45, "Thread-1", True, True, [("spin", "/srv/w.py", 3, False)]),
        ],
        42: [(7, None, False, False, [])],
    }  # fmt: skip


def test_a_cut_array_gives_its_whole_threads(reader):
    from .conftest import FIXTURES

    raw = (FIXTURES / "pyspy.json").read_bytes()
    recording = reader.read(raw[: raw.index(b"main.py")])
    assert reader.names(recording) == {41: [["spin"]]}
    assert recording.understood.torn == 1


def test_an_array_between_lines_of_text(reader):
    from .conftest import FIXTURES

    raw = (FIXTURES / "pyspy.json").read_text()
    text = "It hangs:\n```json\n" + raw.split("\n[{")[0] + "\n```\nthanks\n"
    assert reader.names(reader.read(text)) == {41: [["poll", "<module>"], ["spin"]]}
    quoted = "".join(f"> {line}\n" for line in text.splitlines())
    assert reader.names(reader.read(quoted)) == {41: [["poll", "<module>"], ["spin"]]}


def test_bombs_end_quietly():
    for text in ("[" * 200_000, '[{"frames":' * 50_000, '[{"pid":' + "9" * 20_000 + "}", '[{"frames":[{}],"pid":{}}]'):
        pyspy_json.parse(text)
