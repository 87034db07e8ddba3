"""Drawing without an app: widths, letters, bars, and names chosen by somebody else."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.text import Text
from tests.render.hostile import DIAGNOSES as HOSTILE
from tests.render.hostile import TEXT
from tests.top import scenes

from enginectl.model.diagnosed import Diagnosis
from enginectl.top.draw import chain, gauges, header, help, log, pages, threads, tree
from enginectl.top.draw.frames import frame_line, short_file, without_templates
from enginectl.top.draw.style import CLASSES, cells, share_bar, sparkline
from enginectl.top.keys import BINDINGS
from enginectl.top.moment import Moment, NativeSample, Trouble
from enginectl.top.rows import SORTS, table
from enginectl.top.screenful import change_of, looks, screenful, shares

WIDTHS = st.integers(20, 170)


def screen_of(moments: list[Moment], index: int = -1) -> object:
    changes, last = [], None
    for one in moments:
        last = change_of(one, last) or last
        if last is not None and (not changes or changes[-1] is not last):
            changes.append(last)
    return screenful(moments, index % len(moments), changes)


def everything(screen: object, width: int) -> list[Text]:
    """All that can be drawn of one moment."""
    shown = table(screen, helpers=True)
    node = shown.rows[0].node if shown.rows else (1, 1)
    native = NativeSample(threads={node[1]: shown.rows[0].thread.frames if shown.rows else ("\x1b[2J",)})
    return [
        *header.header(screen, width),
        *tree.tree(screen, width, None),
        *threads.threads(screen, shown, width),
        threads.heading(width),
        threads.footer(screen, shown, width),
        *(threads.stack_below(shown.rows[0], width) if shown.rows else ()),
        *gauges.gauges(screen, width),
        *log.log(screen, width),
        *chain.chain(screen, width),
        *pages.stack(screen, node, width, lambda _: "# page\x1b[2J\n"),
        *pages.native(native, node[1], width),
        *help.help_lines(screen, width),
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(of=HOSTILE, width=WIDTHS, words=TEXT)
def test_nothing_raw_reaches_the_terminal(of: Diagnosis, width: int, words: str) -> None:
    seen = {(p.pid, t.tid): words for p in of.processes for t in p.threads}
    one = Moment(
        at=1.0, taken_at=words, diagnosis=of, classes=seen, model=words, trouble=Trouble(text=words, fix=words)
    )
    for line in everything(screen_of([one]), width):
        for character in line.plain:
            assert unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co"), repr(line.plain)


@pytest.mark.parametrize("width", [40, 55, 80, 120, 160])
@pytest.mark.parametrize("name", ["device-hang", "deadlock", "undecided", "attach-denied", "collective-hang"])
def test_lines_of_the_main_screen_fit(name: str, width: int) -> None:
    screen = screen_of(scenes.story(name))
    shown = table(screen, helpers=True)
    for line in (*header.header(screen, width), *gauges.gauges(screen, width), *log.log(screen, width)):
        assert line.cell_len <= width
    if width >= 55:
        assert all(line.cell_len <= width for line in threads.threads(screen, shown, width))


@given(st.dictionaries(st.sampled_from([*CLASSES, "new"]), st.floats(0, 1), max_size=9), st.integers(0, 40))
def test_a_bar_is_as_wide_as_asked(raw: dict[str, float], width: int) -> None:
    bar = cells(raw, width)
    assert share_bar(raw, width).cell_len == width
    assert sum(count for _, count in bar) == (width if any(raw.values()) else 0)
    assert all(count > 0 for _, count in bar)


def test_a_rare_wait_stays_visible() -> None:
    assert dict(cells({"idle": 0.99, "lock": 0.01}, 10)) == {"lock": 1, "idle": 9}


def test_every_class_has_a_letter_of_its_own() -> None:
    letters = [look.letter for look in CLASSES.values()]
    assert len(set(letters)) == len(letters)


def test_a_sparkline_keeps_gaps_and_scales() -> None:
    assert sparkline([0.0, None, 0.5, 1.0, float("nan")], 6, 1.0) == " ▁ ▅█ "


def test_shares_and_strip_tell_the_last_minute() -> None:
    moments = scenes.story("device-hang")
    screen = screen_of(moments)
    node = next(row.node for row in table(screen).rows if row.mark == "!")
    got = shares(screen, node)
    assert sum(got.values()) == pytest.approx(1.0)
    assert 0.25 < got["device"] < 0.55
    line = pages.strip(screen, node, 60).plain
    assert line.rstrip().endswith("D" * 15) and "#" in line[:30]
    assert looks(screen, (1, 1)) == ()


def test_the_culprit_comes_first_then_who_waits_for_it() -> None:
    rows = table(screen_of(scenes.story("device-hang"))).rows
    assert [row.mark for row in rows][:2] == ["!", "|"]
    assert rows[0].thread.role == "engine-loop"


def test_a_helper_that_is_to_blame_is_shown() -> None:
    screen = screen_of(scenes.story("deadlock"))
    assert table(screen).hidden + len(table(screen).rows) == len(table(screen, helpers=True).rows)


@pytest.mark.parametrize("sort", SORTS)
def test_every_sort_keeps_every_row(sort: str) -> None:
    screen = screen_of(scenes.many_ranks())
    assert {r.node for r in table(screen, sort=sort).rows} == {r.node for r in table(screen).rows}


def test_the_log_notes_changes_only() -> None:
    screen = screen_of(scenes.gone())
    assert [change.state for change in screen.log] == ["busy", "gone"]
    assert screen.verdict_seconds == 4.0


def test_frames_are_short() -> None:
    name = "c10::fn<void (char**), {lambda()#1}>::call(at::Iter&, bool) const"
    assert without_templates(name) == "c10::fn::call"
    assert without_templates("outer.<locals>.inner") == "outer.<locals>.inner"
    assert short_file("/opt/v/lib/python3.12/site-packages/vllm/v1/core.py:7") == "vllm/v1/core.py:7"
    assert frame_line("a::b<c>(d) (/usr/lib/libx.so)", 60).plain == "  a::b  …/usr/lib/libx.so".replace("…/", "/")


def test_help_names_every_key() -> None:
    told = " ".join(key for key, _ in help.KEYS)
    signs = {"question_mark": "?", "up": "↑", "down": "↓", "left": "←", "right": "→"}
    for binding in BINDINGS:
        first = binding.key.split(",")[0]
        if first not in ("pageup", "pagedown", "shift+tab"):
            assert signs.get(first, first) in told, binding.key
