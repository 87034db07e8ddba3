import io
from pathlib import Path

import pytest

from enginectl.diagnose.diagnose import diagnose
from enginectl.errors import UsageError
from enginectl.knowledge.loader import load
from enginectl.model.observed import StatedProcess
from enginectl.read import facts, read, read_facts

from .conftest import FIXTURES


def test_every_key_of_the_contract():
    with (FIXTURES / "facts.toml").open("rb") as stream:
        stated = read_facts("facts.toml", stream)
    assert stated.engine == "vllm"
    assert (stated.gpus[0].utilization_percent, stated.gpus[0].power_watts) == (96, 20)
    assert (stated.requests.running, stated.requests.waiting) == (2, None)
    assert stated.progress.tokens_frozen_seconds == 300
    assert stated.process == (StatedProcess(pid=435, os_state="S", cpu_ratio=0.08),)
    assert stated.thread[0].tid == 435
    assert len(stated.log.lines) == 1


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("enigne = 'vllm'", "enigne"),
        ("[requests]\nrunnign = 1", "requests.runnign"),
        ("[requests]\nrunning = 'many'", "requests.running"),
        ("[[process]]\npid = 1\ncpu = 2", "cpu"),
        ("a = = 1", "TOML"),
    ],
)
def test_wrong_keys_are_named(text, key):
    with pytest.raises(UsageError, match=key):
        facts.parse(text)


def test_bytes_that_are_no_text():
    with pytest.raises(UsageError):
        read_facts("facts", io.BytesIO(b"\xff\xfe\xff"))


def test_the_file_of_the_guide_is_read_whole() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "howto" / "write-a-facts-file.md").read_text()
    text = guide.partition("```toml\n")[2].partition("```")[0]
    told = facts.parse(text)
    assert (told.engine, told.requests.running, told.process[0].collective_sequence) == ("vllm", 2, 1412)
    for name in ("gpus", "requests", "progress", "host", "process", "thread", "log"):
        assert getattr(told, name), name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[progress]\nfrozen = 3", "Keys of progress: tokens_frozen_seconds"),
        ("[[process]]\npid = 1\nfoo = 2", "Keys of process: pid, os_state"),
        ("x = 1", "Keys at the top: engine, "),
    ],
)
def test_a_wrong_key_shows_those_that_exist(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        facts.parse(text)
    assert words in caught.value.fix


SPREAD = """Process 7: python3 serve.py

Thread 7 (active): "MainThread"
    run (asyncio/runners.py:195)
    <module> (serve.py:5)
"""


def test_a_stated_engine_is_believed_and_its_waits_alone_count() -> None:
    stated = facts.parse('engine = "lmdeploy"\nengine_version = "0.9"\n')
    seen = diagnose(read([("dump", io.BytesIO(SPREAD.encode()))], facts=stated), load())
    assert {(p.engine, p.engine_version) for p in seen.processes} == {("lmdeploy", "0.9")}
    assert seen.verdict.outcome == "undecided"


def test_a_stated_cpu_limit_that_is_used_up() -> None:
    text = """Process 7: VLLM::EngineCore

Thread 7 (active): "MainThread"
    schedule (vllm/v1/core/sched/scheduler.py:400)
    step (vllm/v1/engine/core.py:500)
    run_busy_loop (vllm/v1/engine/core.py:1200)
"""
    limit = "[host]\ncpu_limit_cores = 1.0\n[[process]]\npid = 7\ncpu_ratio = {}\n"
    found = [
        diagnose(read([("dump", io.BytesIO(text.encode()))], facts=facts.parse(limit.format(used))), load())
        for used in (0.97, 0.2)
    ]
    assert ["cpu-starved" in {f.finding for f in seen.findings} for seen in found] == [True, False]
