"""NCCL's RAS socket: a process of its own that speaks the protocol, found and asked as the real one would be."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from enginectl.model.observed import Communicator, CommunicatorRank
from enginectl.observe.nccl_ras import parse_report, read_communicators

SERVER = """
import os, socket, sys
how, report, fd = sys.argv[1], sys.argv[2], int(sys.argv[3])
server = socket.socket(fileno=fd)
print("listening", flush=True)
while True:
    link, _ = server.accept()
    with link:
        for line in link.makefile():
            word = line.strip().lower()
            if how == "mute":
                continue
            if how == "other":
                link.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")
                break
            if word.startswith("client protocol"):
                link.sendall(b"SERVER PROTOCOL 2\\n")
            elif word.startswith("timeout"):
                link.sendall(b"OK\\n")
            elif word.startswith("set format"):
                link.sendall(b"OK\\n" if how == "json" else b"ERROR: Unknown command set format json\\n")
            elif word.endswith("status"):
                link.sendall(report.replace("PID", str(os.getpid())).encode())
                break
"""


@contextlib.contextmanager
def ras(how: str, report: str) -> Iterator[int]:
    """A process that listens where NCCL_RAS_ADDR of its own environment says."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = subprocess.Popen(
            [sys.executable, "-c", SERVER, how, report, str(server.fileno())],
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[server.fileno()],
            env={**os.environ, "NCCL_RAS_ADDR": f"localhost:{server.getsockname()[1]}"},
        )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "listening\n"
        yield child.pid
    finally:
        child.kill()
        child.wait()


def rank(number: int, count: int, *, pid: object = 1, host: str = "10.0.0.9", **status: object) -> dict[str, object]:
    return {
        "rank": number,
        "host": host,
        "pid": pid,
        "cuda_dev": number,
        "nvml_dev": number,
        "status": {"init_state": 0, "async_error": 0, "abort_flag": False, **status},
        "collective_counts": {"Broadcast": 2, "AllReduce": count},
    }


def report(ranks: list[dict[str, object]], missing: list[dict[str, object]]) -> str:
    group = {"hash": "0xabc", "size": len(ranks) + len(missing), "ranks": ranks, "missing_ranks": missing}
    return json.dumps({"nccl_version": "2.29.2", "communicators_count": 1, "communicators": [group], "ras": {}})


TEXT = """NCCL version 2.27.3 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          8            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         8         8         8   RUNNING  MISMATCH

Errors
======

#0-0 (00000000000000de) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 7 -- GPU 7 managed by process 77 on node 10.0.0.9

Warnings
========

#0-0 (00000000000000de) MISMATCH
  Communicator ranks have different AllReduce operation counts
  6 ranks have launched up to operation 1412
  Rank 3 has launched up to operation 1411 -- GPU 3 managed by process PID on node 127.0.0.1

  Communicator ranks have different Broadcast operation counts
  6 ranks have launched up to operation 2
  Rank 3 has not launched any operations -- GPU 3 managed by process PID on node 127.0.0.1

"""


def test_json_of_a_listener_of_the_tree() -> None:
    ranks = [rank(0, 1412, pid="PID", host="127.0.0.1"), rank(1, 1411), rank(2, 0, init_state=7)]
    lost = [{"rank": 3, "host": "unknown", "pid": -1, "status": {"unresponsive": True, "considered_dead": False}}]
    text = report(ranks, lost).replace('"PID"', "PID")
    with ras("json", text) as pid:
        found, gaps = read_communicators([pid])
    assert gaps == ()
    assert found == (
        Communicator(
            name="abc",
            size=4,
            ranks=(
                CommunicatorRank(rank=0, pid=pid, collectives={"Broadcast": 2, "AllReduce": 1412}),
                CommunicatorRank(rank=1, collectives={"Broadcast": 2, "AllReduce": 1411}),
                CommunicatorRank(rank=2, state="starting", collectives={"Broadcast": 2, "AllReduce": 0}),
                CommunicatorRank(rank=3, state="silent"),
            ),
        ),
    )


def test_text_of_an_older_release() -> None:
    with ras("text", TEXT) as pid:
        found, gaps = read_communicators([pid])
    assert gaps == ()
    assert found == (
        Communicator(
            name="00000000000000de",
            ranks=(
                CommunicatorRank(rank=3, pid=pid, collectives={"AllReduce": 1411, "Broadcast": 0}),
                CommunicatorRank(rank=7, state="silent"),
                CommunicatorRank(members=6, collectives={"AllReduce": 1412}),
                CommunicatorRank(members=6, collectives={"Broadcast": 2}),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("how", "text", "words"),
    [
        ("mute", "", "did not answer in time"),
        ("other", "", "another protocol"),
        ("json", '{"communicators": [{"hash": 7}]}', "not understood"),
        ("json", "no json at all", "not understood"),
    ],
)
def test_what_cannot_be_read_is_a_gap(how: str, text: str, words: str) -> None:
    with ras(how, text) as pid:
        found, gaps = read_communicators([pid], timeout_seconds=1.0)
    assert found is None
    assert len(gaps) == 1
    assert gaps[0].source == "collectives"
    assert words in gaps[0].reason


def test_no_listener_is_no_gap() -> None:
    assert read_communicators([os.getpid()]) == (None, ())


def test_a_rank_named_below_the_line_that_counts_it_is_counted_once() -> None:
    text = (
        "#0-0 (0a) MISMATCH\n"
        "  Communicator ranks have different AllReduce operation counts\n"
        "  2 ranks have launched up to operation 9\n"
        "  Rank 0 -- GPU 0 managed by process 1 on node 10.0.0.9\n"
        "  Rank 1 -- GPU 1 managed by process 2 on node 10.0.0.9\n"
        "  Rank 2 has launched up to operation 8 -- [process information not found]\n"
    )
    (group,) = parse_report(text, {}, is_json=False)
    assert [(r.rank, r.members, r.collectives) for r in group.ranks] == [
        (0, 1, {"AllReduce": 9}),
        (1, 1, {"AllReduce": 9}),
        (2, 1, {"AllReduce": 8}),
    ]


@pytest.mark.parametrize(
    "line",
    ["#0-0 (" + "f" * 100000, "  Rank " + "9" * 5000 + " -- [", "  Rank 1" + " -" * 50000],
    ids=["head", "digits", "dashes"],
)
def test_hostile_text_ends(line: str) -> None:
    parse_report(f"#0-0 (0a) MISMATCH\n{line}\n" * 3, {}, is_json=False)
