"""The HTML report: self-contained, readable, drawn to scale, and quiet in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.render.situations import DIAGNOSES, timeline

from enginectl.errors import UsageError
from enginectl.model.timeline import Timeline, TimelineRow, TimelineSeries
from enginectl.render.html import render_html
from enginectl.render.svg_timeline import draw_timeline

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@pytest.mark.parametrize("name", DIAGNOSES)
def test_it_is_one_file_with_working_links(name: str) -> None:
    report = render_html(DIAGNOSES[name](), timeline=timeline())
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", report)
    assert "url(" not in report
    assert "default-src 'none'" in report
    anchors = set(re.findall(r' id="([^"]+)"', report))
    assert set(re.findall(r'href="#([^"]+)"', report)) <= anchors
    assert set(re.findall(r'aria-labelledby="([^"]+)"', report)) <= anchors
    assert len(re.findall(r' id="', report)) == len(anchors)
    for needed in ('<html lang="en">', "<title>", "<main", "<nav", "<header", "<footer"):
        assert needed in report


@pytest.mark.parametrize("name", DIAGNOSES)
def test_it_opens_with_the_verdict(name: str) -> None:
    diagnosis = DIAGNOSES[name]()
    report = render_html(diagnosis)
    healthy = diagnosis.verdict.outcome == "decided" and diagnosis.verdict.state in ("idle", "busy")
    assert report.index("<h1>") < report.index("<h2")
    assert ("ealthy" in report) == healthy
    assert '<section id="timeline"' not in report


def test_bands_are_to_scale_and_unsampled_time_stays_empty() -> None:
    row = TimelineRow(pid=1, role="engine-loop", name="", classes=("cpu", "cpu", "", "device"))
    drawing = draw_timeline(Timeline(times=(0.0, 1.0, 2.0, 3.0), rows=(row,)))
    assert drawing is not None
    first, second = next(lane.bands for lane in drawing.lanes if lane.bands)
    assert (first.group, second.group) == ("cpu", "device")
    assert first.width == pytest.approx(2 * second.width, abs=0.2)
    assert second.x - (first.x + first.width) == pytest.approx(second.width, abs=0.2)
    assert second.x + second.width == pytest.approx(drawing.right, abs=0.2)


def test_a_line_breaks_where_nothing_was_read() -> None:
    series = TimelineSeries(name="power", unit="watts", values=(1.0, 2.0, None, 4.0, float("nan")))
    drawing = draw_timeline(Timeline(times=(0.0, 1.0, 2.0, 3.0, 4.0), gpus=(series,)))
    assert drawing is not None
    lane = drawing.lanes[-1]
    assert [len(line.split()) for line in lane.lines] == [2, 1]
    assert lane.reading == "last 4 W, most 4 W"


@pytest.mark.parametrize("times", [(), (0.0,), (1.0, 1.0), (0.0, 100000.0)])
def test_odd_timelines_do_not_raise(times: tuple[float, ...]) -> None:
    row = TimelineRow(pid=1, role="engine-loop", name="x", classes=("cpu",) * len(times))
    drawing = draw_timeline(Timeline(times=times, rows=(row,)))
    assert (drawing is None) == (not times)
    render_html(DIAGNOSES["idle"](), timeline=Timeline(times=times, rows=(row,)))


def test_text_is_told_from_its_ground_in_light_dark_and_print() -> None:
    report = render_html(DIAGNOSES["idle"](), timeline=timeline())
    blocks = re.findall(r":root \{([^}]*)\}", report)
    assert len(blocks) == 3
    light = dict(re.findall(r"--([a-z]+):(#[0-9a-f]{3,6})", blocks[0]))
    for block in blocks:
        colors = light | dict(re.findall(r"--([a-z]+):(#[0-9a-f]{3,6})", block))
        for ink in ("text", "soft", "link", "mark"):
            for ground in ("page", "panel"):
                assert contrast(colors[ink], colors[ground]) >= 4.5, (ink, ground)
        for tone in ("good", "warn", "bad", "open"):
            assert contrast("#fff", colors[tone]) >= 4.5, tone
    for tint in re.findall(r"\.c-[a-z-]+ \{ fill:(#[0-9a-f]{6})", report):
        assert contrast("#111", tint) >= 4.5, tint


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    digits = color[1:] if len(color) == 7 else "".join(digit * 2 for digit in color[1:])
    parts = [int(digits[index : index + 2], 16) / 255 for index in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_without_jinja2_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError) as failure:
        render_html(DIAGNOSES["idle"]())
    assert "enginectl[html]" in failure.value.fix


def chromium(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    base = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={page.parent / 'profile'}", "--window-size=1100,1400"]  # fmt: skip
    return subprocess.run([*base, *options, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)


@browser
def test_a_browser_shows_it_without_a_complaint(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_html(DIAGNOSES["device-hang"](), timeline=timeline()), encoding="utf-8")
    shown = chromium(page, "--dump-dom")
    assert "CONSOLE" not in shown.stderr
    assert '<p id="search">' in shown.stdout, "the script did not reveal the search field"
    picture = tmp_path / "report.png"
    chromium(page, f"--screenshot={picture}")
    assert picture.stat().st_size > 20_000


@browser
def test_the_search_folds_other_stacks_away(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    report = render_html(DIAGNOSES["deadlock"]())
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    act = (
        "<script>var f = document.getElementById('find'); f.value = 'REQUEST_abort';"
        " f.dispatchEvent(new Event('input'));</script></body>"
    )
    page.write_text(policy.sub("", report).replace("</body>", act), encoding="utf-8")
    shown = chromium(page, "--dump-dom").stdout
    assert "1 of 2 stacks" in shown
    stacks = re.findall(r'<details class="stack"([^>]*)>', shown)
    assert sorted("hidden" in attributes for attributes in stacks) == [False, True]


@browser
def test_without_scripts_everything_is_still_there(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    report = render_html(DIAGNOSES["deadlock"]())
    page.write_text(report.replace("script-src 'unsafe-inline'", "script-src 'none'"), encoding="utf-8")
    shown = chromium(page, "--dump-dom").stdout
    assert 'id="search" hidden' in shown
    assert shown.count('<details class="stack"') == 2
