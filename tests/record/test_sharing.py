"""What leaves the machine: no secret, no text of a log, no variable that is not on the list."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from enginectl.model.observed import ProcessFact, Recording
from enginectl.observe.environment import read_environment
from enginectl.observe.target import Seen, fact_of
from enginectl.read.remarks import words_of
from enginectl.record.sharing import TAIL_LINES, account_of, tail_of, with_environment, with_log

SECRETS = {
    "HF_TOKEN": "hf_abcdefghijklmnop",
    "VLLM_API_KEY": "letmein",
    "VLLM_S3_ACCESS_KEY_ID": "AKIA123",
    "AWS_SECRET_ACCESS_KEY": "s3",
    "VLLM_HOST_IP": "10.0.0.7",
    "VLLM_CACHE_ROOT": "/home/somebody/cache",
    "NCCL_SOCKET_IFNAME": "a text with blanks",
    "SGLANG_PROXY": "http://user:pw@proxy",
    "HOME": "/home/somebody",
    "CUSTOMER": "ACME",
}
KEPT = {"NCCL_DEBUG": "INFO", "VLLM_USE_V1": "1", "CUDA_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "4"}
PATHS = {"TRITON_PTXAS": "/home/somebody/tools/ptxas", "VLLM_CPU_PRELOAD": "/home/a/libx.so:/home/b/liby.so"}
CUT = {"TRITON_PTXAS": "ptxas", "VLLM_CPU_PRELOAD": "libx.so:liby.so"}


@pytest.fixture
def child():
    child = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); input()"],
        env={**SECRETS, **KEPT, **PATHS, "PATH": os.environ["PATH"]}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdout.readline()
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_only_listed_variables_are_kept(child) -> None:
    found = read_environment(child.pid)
    assert found is not None
    kept, count = found
    assert kept == KEPT | CUT
    assert count == len(SECRETS) + len(KEPT) + len(PATHS) + 1
    assert read_environment(1 << 22) is None


def test_the_account_names_what_was_taken_and_no_value(child) -> None:
    command = ("vllm", "serve", "m", "--api-key", "letmein", "--max-num-seqs", "4", "--url=http://u:pw@host")
    seen = Seen(pid=child.pid, parent_pid=1, started_at=0.0, title="vllm --api-key letmein", command=command, state="S",
                engine="vllm", role="frontend")  # fmt: skip
    fact, taken = fact_of(seen, {}, {})
    assert taken
    head = with_environment(Recording(processes=(fact,)), read_environment)
    account = "\n".join(account_of(head))
    assert f"command line of pid {child.pid}: the values of --api-key" in account
    assert f"{len(KEPT) + len(CUT)} of {len(SECRETS) + len(KEPT) + len(PATHS) + 1} variables kept" in account
    assert "never read" in account
    for secret in ("letmein", "u:pw", "hf_", "AKIA"):
        assert secret not in account + repr(head)


def test_a_log_gives_classes_and_no_text() -> None:
    prompt = b"INFO Received request: prompt: 'my diagnosis is confidential', CUDA error: illegal memory access"
    lines = [prompt, b"No available shared memory broadcast block", b"No available shared memory broadcast block", b""]
    head = with_log(Recording(), "engine.log", lines, words_of)
    assert "log: shm-broadcast-wait (in 2 lines)" in head.notes
    assert "log: device-error (in 1 lines)" in head.notes
    assert "confidential" not in repr(head)
    assert head.redactions == ("log engine.log: 4 lines read, 3 class words kept, no text",)


def test_the_tail_of_a_log_is_bounded() -> None:
    assert tail_of(io.BytesIO(b"a\nb\nc")) == [b"a", b"b", b"c"]
    many = tail_of(io.BytesIO(b"x" * 90 + b"\n" + (b"y" * 99 + b"\n") * 20_000))
    assert len(many) == TAIL_LINES
    assert all(line in (b"y" * 99, b"") for line in many)
    one = tail_of(io.BytesIO(b"z" * (3 << 20)))
    assert one == []


def test_processes_that_are_no_engine_keep_no_environment(child) -> None:
    head = with_environment(Recording(processes=(ProcessFact(pid=child.pid, role="helper"),)), read_environment)
    assert head.processes[0].environment == {}
    assert head.redactions == ()
