"""Which processes make up one engine: real trees of processes with the titles that engines give themselves."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from enginectl.cli.pipeline import Recogniser
from enginectl.knowledge.loader import load
from enginectl.observe import target

pytest.importorskip("setproctitle")
CHILD = "import setproctitle; setproctitle.setproctitle({title!r}); print('ready', flush=True); input()"
PARENT = (
    "import subprocess, sys; "
    "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=sys.stdin, stdout=subprocess.PIPE); "
    "child.stdout.readline(); print(child.pid, flush=True); child.wait()"
)


@pytest.fixture
def tree(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """(parent, child): a plain Python program, and below it a process of this title."""
    words = [sys.executable, "-c", PARENT, CHILD.format(title=request.param)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        try:
            yield parent.pid, int(parent.stdout.readline())
        finally:
            parent.stdin.close()


@pytest.mark.parametrize("tree", ["VLLM::EngineCore"], indirect=True)
def test_the_program_that_started_an_engine_core_is_its_front_end(tree: tuple[int, int]) -> None:
    parent, child = tree
    table = target.list_processes(Recogniser(load()))
    assert [seen.pid for seen in target.tree_of(table, child)] == [parent, child]
    assert [seen.pid for seen in target.tree_of(table, parent)] == [parent, child]
    assert parent in target.engines_on_host(table) and child not in target.engines_on_host(table)


@pytest.mark.parametrize("tree", ["VLLM::APIServer_0"], indirect=True)
def test_a_program_above_a_front_end_is_a_supervisor(tree: tuple[int, int]) -> None:
    parent, child = tree
    table = target.list_processes(Recogniser(load()))
    assert [seen.pid for seen in target.tree_of(table, child)] == [child]
    assert child in target.engines_on_host(table) and parent not in target.engines_on_host(table)


@pytest.mark.parametrize("tree", ["VLLM::EngineCore"], indirect=True)
def test_a_child_with_no_known_title_belongs_to_the_tree(tree: tuple[int, int]) -> None:
    """What MPI or Ray started below the engine may be the one that knows the cause."""
    parent, child = tree
    words = [sys.executable, "-c", PARENT, "print(1, flush=True); input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None and other.stdout is not None
        below = int(other.stdout.readline())
        table = target.list_processes(Recogniser(load()))
        table[other.pid] = msgspec.structs.replace(table[other.pid], parent_pid=child)
        members = [seen.pid for seen in target.tree_of(table, parent)]
        other.stdin.close()
    assert members == [parent, child, other.pid, below]


@pytest.mark.parametrize("tree", ["VLLM::EngineCore"], indirect=True)
def test_an_orphan_does_not_join_the_engine_below_its_new_parent(tree: tuple[int, int]) -> None:
    _, child = tree
    table = target.list_processes(Recogniser(load()))
    other = msgspec.structs.replace(table[child], pid=1 << 22, title="VLLM::APIServer_0", role="frontend")
    table[other.pid] = other
    assert [seen.pid for seen in target.tree_of(table, child)] == [child]


ACTOR = """
import socket, sys, setproctitle
setproctitle.setproctitle("ray::RayWorkerWrapper.execute_method")
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
links = [socket.create_connection(("127.0.0.1", int(port))) for port in sys.argv[1:]]
while True:
    links.append(server.accept()[0])
"""
CALLER = """
import socket, sys, setproctitle
setproctitle.setproctitle("VLLM::EngineCore")
links = [socket.create_connection(("127.0.0.1", int(port))) for port in sys.argv[1:]]
print("ready", flush=True)
input()
"""


@contextlib.contextmanager
def running(program: str, *words: str) -> Iterator[tuple[int, str]]:
    """A process of its own session, as a daemon starts it, and its first line."""
    shell = [sys.executable, "-c", program, *words]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.pid, child.stdout.readline().strip()
        finally:
            child.kill()


def test_a_ray_actor_belongs_to_the_engine_that_calls_it() -> None:
    """Ray's daemon is the parent of all actors of all jobs on the host."""
    with running(ACTOR) as (first, port), running(ACTOR) as (second, other):
        with running(CALLER, port) as (caller, _), running(CALLER, other, other) as (stranger, _):
            table = target.list_processes(Recogniser(load()))
            assert [seen.pid for seen in target.tree_of(table, first) if seen.engine] == [caller, first]
            assert [seen.pid for seen in target.tree_of(table, caller) if seen.engine] == [caller, first]
            assert [seen.pid for seen in target.tree_of(table, second) if seen.engine] == [stranger, second]
            assert not {first, second} & set(target.engines_on_host(table))
        table = target.list_processes(Recogniser(load()))
        assert [seen.pid for seen in target.tree_of(table, first)] == [first]


def test_ranks_that_talk_among_themselves_still_belong_to_their_engine() -> None:
    """The links between ranks outnumber the one of the engine, and an actor may be older than its engine."""
    with (
        running(ACTOR) as (first, port),
        running(ACTOR, port, port, port) as (second, other),
        running(CALLER, port, other) as (caller, _),
    ):
        table = target.list_processes(Recogniser(load()))
        assert {seen.pid for seen in target.tree_of(table, first) if seen.engine} == {caller, first, second}
        assert not {first, second} & set(target.engines_on_host(table))
