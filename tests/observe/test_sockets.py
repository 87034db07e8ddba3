"""Sockets: real TCP connections, seen through INET_DIAG."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from enginectl.observe.sockets import Clients, listeners, read_clients, read_connections

ME = [os.getpid()]

CLIENT = """
import socket, sys
links = []
for line in sys.stdin:
    word, _, rest = line.strip().partition(" ")
    if word == "open":
        links.append(socket.create_connection((rest.split()[0], int(rest.split()[1]))))
    elif word == "send":
        links[int(rest)].sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    elif word == "read":
        links[int(rest)].recv(65536)
    elif word == "half":
        links[int(rest)].shutdown(socket.SHUT_WR)
    print("done", flush=True)
"""


class Client:
    """A process of its own that talks to us on command."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def say(self, line: str) -> None:
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        assert self.child.stdout.readline() == "done\n"

    def close(self) -> None:
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.close()
        self.child.wait(10)
        self.child.stdout.close()


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.close()


@contextlib.contextmanager
def listening(host: str = "127.0.0.1") -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        try:
            read_connections(frozenset({1}))
        except OSError as error:
            pytest.skip(f"this kernel gives no TCP diagnostics: {error}")
        yield server


def wait_until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not come true in time"
        os.sched_yield()


def test_listeners_are_found_with_address_port_and_owner() -> None:
    with listening() as first, listening("::1") as second:
        found, gaps = listeners(ME)
        ports = [server.getsockname()[1] for server in (first, second)]
    assert {(each.address, each.port, each.pid) for each in found} == {
        ("127.0.0.1", ports[0], os.getpid()),
        ("::1", ports[1], os.getpid()),
    }
    assert {each.owner_uid for each in found} == {os.getuid()}
    assert gaps == ()


def test_listeners_of_a_process_that_is_gone_are_none() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert listeners([child.pid]) == ((), ())


def test_without_a_listener_it_is_not_known_whether_anybody_waits() -> None:
    assert read_clients(ME) == Clients()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_request_that_got_nothing_back_counts_with_its_age(client: Client, host: str) -> None:
    with listening(host) as server:
        client.say(f"open {host} {server.getsockname()[1]}")
        link, _ = server.accept()
        with link:
            assert read_clients(ME) == Clients(unanswered=0, unclear=0)
            client.say("send 0")
            link.recv(65536)
            seen = read_clients(ME)
            age = seen.unanswered_seconds
            assert (seen.unanswered, seen.gaps) == (1, ())
            assert age is not None and 0 <= age < 5
            wait_until(lambda: (read_clients(ME).unanswered_seconds or 0) > age)


def answer_and_be_asked_again(client: Client, link: socket.socket) -> None:
    """The client sends its next request as soon as it has its answer: often within one tick of the kernel's clock."""
    link.recv(65536)
    link.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    client.say("read 0")
    client.say("send 0")


def test_an_answered_request_is_an_idle_keep_alive_until_the_next_one(client: Client) -> None:
    with listening() as server:
        client.say(f"open 127.0.0.1 {server.getsockname()[1]}")
        link, _ = server.accept()
        with link:
            client.say("send 0")
            link.recv(65536)
            link.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            client.say("read 0")
            wait_until(lambda: read_clients(ME).unanswered == 0)

            def later() -> bool:
                return all(each.sent_age_ms > 20 for each in read_connections(frozenset({server.getsockname()[1]})))

            wait_until(later)
            client.say("send 0")
            assert read_clients(ME).unanswered == 1


def test_a_client_that_sends_its_next_request_at_once_is_never_taken_for_answered(client: Client) -> None:
    with listening() as server:
        client.say(f"open 127.0.0.1 {server.getsockname()[1]}")
        link, _ = server.accept()
        with link:
            client.say("send 0")
            for _ in range(50):
                answer_and_be_asked_again(client, link)
                seen = read_clients(ME)
                assert ((seen.unanswered or 0) + (seen.unclear or 0), seen.gaps) == (1, ())


def test_an_answered_keep_alive_probe_is_no_answer(client: Client) -> None:
    with listening() as server:
        port = server.getsockname()[1]
        client.say(f"open 127.0.0.1 {port}")
        link, _ = server.accept()
        with link:
            client.say("send 0")
            for _ in range(200):
                answer_and_be_asked_again(client, link)
                if read_clients(ME).unclear:
                    break
            else:
                pytest.skip("no request fell into the tick of the answer before it")
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)

            def probed() -> bool:
                rows = [row for row in read_connections(frozenset({port})) if row.local[1] == port]
                return all(0 <= row.acknowledged_age_ms < row.sent_age_ms - 500 for row in rows)

            wait_until(probed, 20)
            seen = read_clients(ME)
            assert (seen.unanswered, seen.unclear) == (0, 1)


def test_a_connection_that_was_never_accepted_counts(client: Client) -> None:
    """A front end whose loop is held does not even accept."""
    with listening() as server:
        client.say(f"open 127.0.0.1 {server.getsockname()[1]}")
        client.say("send 0")
        count = read_clients(ME).unanswered
        rows = read_connections(frozenset({server.getsockname()[1]}))
    assert count == 1
    assert max(each.unread_bytes for each in rows) == len(b"GET / HTTP/1.1\r\n\r\n")


def test_several_requests_and_the_port_filter(client: Client) -> None:
    with listening() as server, listening() as other:
        port = server.getsockname()[1]
        for n in range(3):
            client.say(f"open 127.0.0.1 {port}")
            client.say(f"send {n}")
        client.say(f"open 127.0.0.1 {other.getsockname()[1]}")
        client.say("send 3")
        assert read_clients(ME).unanswered == 4
        assert read_clients(ME, ports=[port]).unanswered == 3
        assert read_clients(ME, ports=[]).unanswered == 0


def test_a_client_that_gave_up_is_owed_nothing(client: Client) -> None:
    with listening() as server:
        client.say(f"open 127.0.0.1 {server.getsockname()[1]}")
        client.say("send 0")
        client.say("half 0")
        wait_until(lambda: read_clients(ME).unanswered == 0)


def test_connections_inside_the_tree_and_our_own_do_not_count(client: Client) -> None:
    with listening() as server:
        address = server.getsockname()
        with socket.create_connection(address) as mine:
            mine.sendall(b"x")
            assert read_clients(ME).unanswered == 0
        client.say(f"open 127.0.0.1 {address[1]}")
        client.say("send 0")
        assert read_clients(ME).unanswered == 1
        assert read_clients([*ME, client.child.pid]).unanswered == 0


def test_nothing_was_asked() -> None:
    assert read_clients([]) == Clients()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network namespace of its own")
def test_another_network_namespace_is_a_gap() -> None:
    child = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo up; exec sleep 60"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        if child.stdout.readline() != b"up\n":
            pytest.skip("this machine refuses unshare --net")
        seen = read_clients([child.pid])
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert (seen.unanswered, seen.unclear) == (None, None)
    assert "another network namespace" in seen.gaps[0].reason
    assert f"nsenter -t {child.pid} -n" in seen.gaps[0].remedy
