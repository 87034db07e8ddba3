"""Counters: parsing of what engines export, and a real server that behaves in every way a server can."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from enginectl.observe.counters import SIZE_LIMIT_BYTES, find_metrics_url, parse_counters, read_counters

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1e1
vllm:kv_cache_usage_perc{engine="0",model_name="m"} NaN
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 12.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 12.0
vllm:time_to_first_token_seconds_created{engine="0",model_name="m"} 1.7e+09
vllm:generation_tokens_total{engine="0",model_name="a \\"b\\" } c"} 77.0 1700000000000
vllm:never{engine="0"} +Inf
process_resident_memory_bytes 4.2e+09
python_gc_objects_collected_total{generation="0"} 5.0
http_requests_total{handler="/v1/completions"} 9.0
"""

Reply = Callable[[socket.socket], None]


def plain(body: str, status: str = "200 OK", extra: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body.encode())}\r\n{extra}\r\n{body}".encode()


def answer(raw: bytes) -> Reply:
    def reply(link: socket.socket) -> None:
        link.recv(65536)
        link.sendall(raw)

    return reply


def never(link: socket.socket) -> None:
    """Accepts the request and holds the line until the other side leaves."""
    while link.recv(65536):
        pass


@contextlib.contextmanager
def serving(reply: Reply, host: str = "127.0.0.1", wrap: ssl.SSLContext | None = None) -> Iterator[int]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    stop = threading.Event()

    def one(link: socket.socket) -> None:
        with contextlib.suppress(OSError):
            link.settimeout(5)
            with wrap.wrap_socket(link, server_side=True) if wrap else link as spoken:
                reply(spoken)
        link.close()

    def loop(server: socket.socket) -> None:
        server.settimeout(0.02)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                link, _ = server.accept()
                thread = threading.Thread(target=one, args=(link,), daemon=True)
                thread.start()
                threads.append(thread)

    threads: list[threading.Thread] = []
    with socket.create_server((host, 0), family=family) as server:
        main = threading.Thread(target=loop, args=(server,), daemon=True)
        main.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            main.join(5)
            for thread in threads:
                thread.join(5)


def test_parse_keeps_engine_and_process_names_and_drops_the_rest() -> None:
    found = {each.name: each for each in parse_counters(VLLM)}
    assert sorted(found) == [
        "process_resident_memory_bytes",
        "vllm:generation_tokens_total",
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:time_to_first_token_seconds_count",
    ]
    assert found["vllm:num_requests_waiting"].value == 10.0
    assert found["vllm:num_requests_running"].labels == {"engine": "0", "model_name": "m"}
    assert found["vllm:generation_tokens_total"].labels["model_name"] == 'a "b" } c'
    assert found["vllm:generation_tokens_total"].value == 77.0


def test_parse_reads_sglang_the_demo_and_exemplars() -> None:
    text = (
        'sglang:num_running_reqs{model_name="m",tp_rank="0"} 2\n'
        "engine_core:generated_tokens_total 5\n"
        'vllm:tokens_total{engine="1"} 4.0 # {trace_id="x"} 1.0 1.7e9\n'
    )
    assert [(each.name, each.value) for each in parse_counters(text)] == [
        ("sglang:num_running_reqs", 2.0),
        ("engine_core:generated_tokens_total", 5.0),
        ("vllm:tokens_total", 4.0),
    ]


def test_parse_of_a_series_given_twice_keeps_the_larger_total_and_the_last_gauge() -> None:
    text = (
        'vllm:tokens_total{engine="0"} 90\nvllm:running{engine="0"} 4\n'
        'vllm:tokens_total{engine="0"} 0\nvllm:running{engine="0"} 5\nvllm:running{engine="1",pid="7"} 1\n'
    )
    assert [(each.name, each.labels.get("engine"), each.value) for each in parse_counters(text)] == [
        ("vllm:tokens_total", "0", 90.0),
        ("vllm:running", "0", 5.0),
        ("vllm:running", "1", 1.0),
    ]


@pytest.mark.parametrize(
    "text", ["", "\0\0\0", 'vllm:x{a="', "vllm:x{} {}", 'vllm:a{b="' + '\\"' * 20000, "vllm:x one"]
)
def test_parse_survives_torn_text(text: str) -> None:
    started = time.monotonic()
    assert parse_counters(text) == ()
    assert time.monotonic() - started < 1.0


def test_parse_is_fast_on_a_large_page() -> None:
    lines = [f'vllm:step_seconds_bucket{{engine="{n % 8}",le="{n}",model_name="m"}} {n}' for n in range(20_000)]
    lines += [f'vllm:thing_{n}_total{{engine="0",model_name="m"}} {n}' for n in range(500)]
    started = time.perf_counter()
    assert len(parse_counters("\n".join(lines))) == 500
    assert time.perf_counter() - started < 2.0


def test_ok() -> None:
    with serving(answer(plain(VLLM))) as port:
        samples, endpoint, gaps = read_counters(f"http://127.0.0.1:{port}/metrics")
    assert endpoint.state == "ok"
    assert samples is not None and len(samples) == 5
    assert gaps == ()
    assert endpoint.seconds is not None and endpoint.seconds < 1


def test_address_without_path_or_scheme_means_metrics() -> None:
    asked: list[bytes] = []

    def reply(link: socket.socket) -> None:
        asked.append(link.recv(65536))
        link.sendall(plain(VLLM))

    with serving(reply) as port:
        _, endpoint, _ = read_counters(f"127.0.0.1:{port}")
    assert endpoint.state == "ok"
    assert asked[0].startswith(b"GET /metrics HTTP/1.1\r\n")


def test_chunked_body_and_a_redirect_on_the_same_host() -> None:
    def reply(link: socket.socket) -> None:
        if b"GET /metrics/ " not in link.recv(65536):
            link.sendall(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /metrics/\r\nContent-Length: 0\r\n\r\n")
            return
        body = VLLM.encode()
        link.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 100):
            part = body[at : at + 100]
            link.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        link.sendall(b"0\r\n\r\n")

    with serving(reply) as port:
        samples, endpoint, _ = read_counters(f"http://127.0.0.1:{port}/metrics")
    assert endpoint.state == "ok"
    assert samples is not None and len(samples) == 5


def test_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    samples, endpoint, gaps = read_counters(f"http://127.0.0.1:{port}/metrics")
    assert (samples, endpoint.state) == (None, "refused")
    assert "nobody listens" in gaps[0].reason


def test_timeout_when_the_port_accepts_and_stays_silent() -> None:
    with serving(never) as port:
        samples, endpoint, gaps = read_counters(f"http://127.0.0.1:{port}/metrics", timeout_seconds=0.2)
    assert (samples, endpoint.state) == (None, "timeout")
    assert endpoint.seconds is not None and 0.15 < endpoint.seconds < 1.5
    assert "loop may be held" in gaps[0].reason


def test_timeout_counts_for_the_whole_answer_not_for_each_read() -> None:
    def drip(link: socket.socket) -> None:
        link.recv(65536)
        link.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            while not closed.wait(0.02):
                link.sendall(b"#")

    closed = threading.Event()
    with serving(drip) as port:
        _, endpoint, _ = read_counters(f"http://127.0.0.1:{port}/metrics", timeout_seconds=0.3)
        closed.set()
    assert endpoint.state == "timeout"
    assert endpoint.seconds is not None and endpoint.seconds < 1.5


def test_size_is_bounded() -> None:
    def flood(link: socket.socket) -> None:
        link.recv(65536)
        link.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            for n in range(10_000):
                link.sendall(b'vllm:x_total{n="%d"} 1\n' % n * 1000)

    with serving(flood) as port:
        samples, endpoint, _ = read_counters(f"http://127.0.0.1:{port}/metrics", timeout_seconds=30)
    assert endpoint.state == "ok"
    assert str(SIZE_LIMIT_BYTES) in endpoint.detail
    assert samples


@pytest.mark.parametrize(
    ("raw", "state"),
    [
        (b"\xff\0\0\0\0\0\0\0\1\x7f", "garbage"),
        (b"", "garbage"),
        (plain("<html>hello</html>"), "garbage"),
        (plain('{"status": "ok"}'), "garbage"),
        (plain("no", "500 Internal Server Error"), "garbage"),
        (plain("no", "401 Unauthorized"), "unauthorized"),
        (plain("no", "403 Forbidden"), "unauthorized"),
        (plain("no", "404 Not Found"), "not-found"),
    ],
)
def test_answers_that_are_no_counters_are_told_apart(raw: bytes, state: str) -> None:
    with serving(answer(raw)) as port:
        samples, endpoint, gaps = read_counters(f"http://127.0.0.1:{port}/metrics")
    assert samples is None
    assert endpoint.state == state
    assert len(gaps) == 1 and gaps[0].source == "engine-counters"


def test_prometheus_text_of_something_else_is_a_gap() -> None:
    with serving(answer(plain("node_load1 0.5\n"))) as port:
        samples, endpoint, gaps = read_counters(f"http://127.0.0.1:{port}/metrics")
    assert (samples, endpoint.state) == ((), "ok")
    assert "no counters of an engine" in gaps[0].reason


def test_token_is_sent_and_never_shown() -> None:
    def reply(link: socket.socket) -> None:
        allowed = b"Authorization: Bearer s3cret\r\n" in link.recv(65536)
        link.sendall(plain(VLLM) if allowed else plain("no", "401 Unauthorized"))

    with serving(reply) as port:
        url = f"http://user:pass@127.0.0.1:{port}/metrics"
        assert read_counters(url, token="s3cret")[1].state == "ok"
        _, endpoint, gaps = read_counters(url)
    assert endpoint.state == "unauthorized"
    assert "pass" not in f"{endpoint}{gaps}"


def test_a_name_that_does_not_resolve_is_bounded() -> None:
    started = time.monotonic()
    _, endpoint, gaps = read_counters("http://no-such-host.invalid:1/metrics", timeout_seconds=0.5)
    assert time.monotonic() - started < 2
    assert endpoint.state in ("unreachable", "timeout")
    assert gaps


@pytest.mark.parametrize("url", ["ftp://x/", "http://", "http://[::1", "http://127.0.0.1:99999/metrics"])
def test_an_address_that_is_none_is_a_gap(url: str) -> None:
    samples, endpoint, gaps = read_counters(url)
    assert samples is None
    assert endpoint.state in ("garbage", "unreachable")
    assert gaps


@pytest.fixture
def certificate(tmp_path: Path) -> ssl.SSLContext:
    made = subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout {tmp_path}/key.pem"
        f" -out {tmp_path}/cert.pem".split(),
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("openssl cannot make a certificate here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    return context


@pytest.mark.skipif(not any(os.access(f"{d}/openssl", os.X_OK) for d in os.get_exec_path()), reason="no openssl here")
def test_https_on_this_machine_with_a_certificate_of_its_own(certificate: ssl.SSLContext) -> None:
    with serving(answer(plain(VLLM)), wrap=certificate) as port:
        _, endpoint, _ = read_counters(f"https://127.0.0.1:{port}/metrics")
    assert endpoint.state == "ok"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_find_picks_the_port_that_serves_an_engine_among_others(host: str) -> None:
    if ":" in host and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with serving(never), serving(answer(b"\xff\0\0\x7f")), serving(answer(plain(VLLM)), host) as port:
        url, gaps = find_metrics_url([os.getpid()], timeout_seconds=0.3)
        assert url is not None and url.endswith(f":{port}/metrics")
        assert gaps == ()
        assert read_counters(url)[1].state == "ok"


def test_find_names_a_silent_port_so_that_it_reads_as_timeout() -> None:
    with serving(never) as port:
        url, _ = find_metrics_url([os.getpid()], timeout_seconds=0.2)
        assert url == f"http://127.0.0.1:{port}/metrics"
        assert read_counters(url, timeout_seconds=0.2)[1].state == "timeout"


def test_find_does_not_guess_between_two_silent_ports() -> None:
    with serving(never), serving(never):
        url, gaps = find_metrics_url([os.getpid()], timeout_seconds=0.2)
    assert url is None
    assert "no port" in gaps[0].reason


def test_find_without_any_listener_is_a_gap() -> None:
    url, gaps = find_metrics_url([os.getpid()])
    assert url is None
    assert gaps[0].remedy == "name the address with --url"


SERVER = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'engine_core:steps_total 3\\n'
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Page)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def server_process(*before: str) -> Iterator[tuple[int, int]]:
    child = subprocess.Popen([*before, sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        line = child.stdout.readline()
        if not line:
            pytest.skip(f"this machine refuses {' '.join(before)}")
        yield child.pid, int(line)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_find_in_another_process() -> None:
    with server_process() as (pid, port):
        url, gaps = find_metrics_url([pid])
    assert url == f"http://127.0.0.1:{port}/metrics"
    assert gaps == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_find_as_a_user_who_may_not_read_the_open_files_takes_the_port_of_the_command_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code = SERVER.replace('("127.0.0.1", 0)', '("127.0.0.1", int(sys.argv[2]))')
    child = subprocess.Popen([sys.executable, "-c", code, "--port", str(port)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        assert child.stdout.readline().strip() == str(port)
        look = f"""
import json
from enginectl.observe.counters import find_metrics_url
url, gaps = find_metrics_url([{child.pid}])
print(json.dumps([url, str(gaps)]))
"""
        done = subprocess.run(
            [*["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"], sys.executable, "-c", look],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"another user cannot start this Python: {done.stderr[-200:]}")
        url, gaps = json.loads(done.stdout)
        assert url == f"http://127.0.0.1:{port}/metrics"
        assert "may not be read" in gaps
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network namespace of its own")
def test_find_in_another_network_namespace_says_so() -> None:
    with server_process("unshare", "--net", "sh", "-c", 'ip link set lo up 2>/dev/null; exec "$@"', "sh") as (pid, _):
        url, gaps = find_metrics_url([pid])
    assert url is None
    assert "another network namespace" in gaps[0].reason
    assert f"nsenter -t {pid} -n" in gaps[0].remedy
