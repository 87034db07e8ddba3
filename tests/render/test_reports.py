"""Complete reports of hand-built diagnoses, compared whole, and what a reader relies on in them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.render.situations import DIAGNOSES

from enginectl.model.diagnosed import ThreadRow
from enginectl.render.json import render_json
from enginectl.render.lines import command, plain
from enginectl.render.markdown import render_markdown
from enginectl.render.text import render_text

Golden = Callable[[str, str], None]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", DIAGNOSES)
def test_text(name: str, width: int, golden: Golden) -> None:
    golden(f"{name}.{width}.txt", render_text(DIAGNOSES[name](), width=width))


@pytest.mark.parametrize("name", DIAGNOSES)
def test_json(name: str, golden: Golden) -> None:
    golden(f"{name}.json", render_json(DIAGNOSES[name]()))


@pytest.mark.parametrize("name", DIAGNOSES)
def test_markdown(name: str, golden: Golden) -> None:
    golden(f"{name}.md", render_markdown(DIAGNOSES[name]()))


@pytest.mark.parametrize("name", DIAGNOSES)
def test_the_verdict_comes_first_and_healthy_is_said_only_when_it_is(name: str) -> None:
    diagnosis = DIAGNOSES[name]()
    decided = diagnosis.verdict.outcome == "decided"
    for report in (render_text(diagnosis), render_markdown(diagnosis), render_text(diagnosis, verbose=True)):
        opening = report.lstrip("*").split("\n")[0]
        assert opening.startswith(diagnosis.verdict.state.upper() if decided else "CANNOT TELL YET")
        if not (decided and diagnosis.verdict.state in ("idle", "busy")):
            assert "ealthy" not in report


def test_a_healthy_state_with_a_warning_beside_it_is_not_called_healthy() -> None:
    diagnosis = DIAGNOSES["idle"]()
    warning = msgspec.structs.replace(diagnosis.findings[0], code="EC603", severity="warning")
    assert "ealthy" not in render_text(msgspec.structs.replace(diagnosis, findings=(*diagnosis.findings, warning)))


def test_verbose_shows_every_thread_and_frame() -> None:
    diagnosis = DIAGNOSES["collective-hang"]()
    report = render_text(diagnosis, width=120, verbose=True)
    assert report.count("worker rank ") >= 8
    assert "pt_nccl_watchdg" in report
    assert "not shown" not in report
    assert "outer frame" not in report


def test_a_hot_helper_is_shown() -> None:
    diagnosis = DIAGNOSES["idle"]()
    hot = ThreadRow(
        tid=9, name="stray", role="helper", wait_point="unknown", wait_class="cpu", activity="running", cpu_ratio=0.99
    )
    process = msgspec.structs.replace(diagnosis.processes[1], threads=(*diagnosis.processes[1].threads, hot))
    report = render_text(msgspec.structs.replace(diagnosis, processes=(process,)))
    assert "stray" in report
    assert "tqdm_monitor" not in report


def test_a_quiet_helper_process_is_counted_and_a_stopped_one_is_shown() -> None:
    diagnosis = DIAGNOSES["idle"]()
    thread = ThreadRow(tid=99, name="main", role="helper", wait_point="unknown", wait_class="idle", activity="waiting")
    for state, shown in (("S", False), ("T", True)):
        process = msgspec.structs.replace(
            diagnosis.processes[0], pid=99, role="helper", title="resource_tracker", os_state=state, threads=(thread,)
        )
        report = render_text(msgspec.structs.replace(diagnosis, processes=(*diagnosis.processes, process)))
        assert ("resource_tracker" in report) is shown
        assert ("+ 1 helper process not shown" in report) is not shown
        assert "helper (pid 99)" not in report.partition("Threads")[0]


def test_a_deadlock_is_drawn_as_a_cycle_even_when_the_roles_do_not_name_it() -> None:
    diagnosis = DIAGNOSES["deadlock"]()
    last = msgspec.structs.replace(diagnosis.chain[-1], waits_for="lock-holder")
    report = render_text(msgspec.structs.replace(diagnosis, chain=(*diagnosis.chain[2:-1], last)))
    assert "a cycle, each waits" in " ".join(report.split())
    assert "victim" not in report


def test_an_empty_diagnosis_leaves_empty_sections_out() -> None:
    diagnosis = msgspec.structs.replace(
        DIAGNOSES["undecided"](), findings=(), chain=(), processes=(), gaps=(), tiers=()
    )
    report = render_text(diagnosis)
    for title in ("Evidence", "Chain", "Threads", "Stack,", "What to do", "GPUs", "Could not"):
        assert title not in report


@pytest.mark.parametrize(
    "text",
    [
        "enginectl doctor --pid 4321 --url http://127.0.0.1:8000/metrics --duration 15 --samples 9 --native --no-gpu",
        "docker run --cap-add SYS_PTRACE -e 'A=quoted words here' image:" + "x" * 120,
    ],
)
def test_a_wrapped_command_is_the_same_command(text: str) -> None:
    shown = "\n".join(plain(line) for line in command(text, 60))
    assert max(map(len, shown.split("\n"))) <= 60
    joined = shown.replace("\\\n", "")
    assert joined.split() == text.split()


def test_terminal_characters_in_names_do_not_reach_any_report() -> None:
    diagnosis = DIAGNOSES["idle"]()
    process = msgspec.structs.replace(diagnosis.processes[0], title="\x1b]0;owned\x07 \u202eevil")
    diagnosis = msgspec.structs.replace(diagnosis, processes=(process,))
    for report in (render_text(diagnosis), render_markdown(diagnosis), render_json(diagnosis)):
        assert "?]0;owned? ?evil" in report
