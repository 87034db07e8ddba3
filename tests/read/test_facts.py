import io

import pytest

from enginectl.errors import UsageError
from enginectl.model.observed import StatedProcess
from enginectl.read import facts, read_facts

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
