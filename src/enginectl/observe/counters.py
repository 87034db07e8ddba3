"""Engine counters: the Prometheus text that an engine serves at `/metrics`.

One GET, bounded in time (a deadline for the whole exchange, not for each read) and in size. How the endpoint
behaved is evidence of its own: a port that accepts and never answers is a front end whose loop is held.
"""

from __future__ import annotations

import base64
import http.client
import io
import math
import os
import re
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

from enginectl.model.observed import CounterSample, Endpoint, Gap
from enginectl.observe.fds import same_namespace
from enginectl.observe.sockets import Listener, foreign_network_gap, listeners

SIZE_LIMIT_BYTES = 8 * 1024 * 1024
SAMPLE_LIMIT = 20_000
WELL_KNOWN_PORTS = (8000, 30000)
_PROBES_AT_ONCE = 8

_LABELS = r'\{((?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*)\}'
_KEPT = re.compile(
    r"^((?:vllm|sglang|engine_core):[\w:]+|process_\w+|http_requests_total)[ \t]*(?:" + _LABELS + r")?[ \t]+(\S+)",
    re.MULTILINE,
)
_ANY = re.compile(r"^[a-zA-Z_:][\w:]*[ \t]*(?:" + _LABELS + r")?[ \t]+[-+]?(?:\d|\.\d|[nN]a[nN]|[iI]nf)", re.MULTILINE)
_LABEL = re.compile(r'([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_STATED_PORT = re.compile(r"^--(?:port|http-port)(?:=(\d+))?$")
_MAYBE_TLS = ("the port speaks TLS", "the connection broke off")
_ENGINE_PREFIXES = ("vllm:", "sglang:", "engine_core:", "http_requests_total")
"""The last one is what Infinity, like any instrumented FastAPI server, counts its requests under."""


def parse_counters(text: str) -> tuple[CounterSample, ...]:
    """Samples of the engine and its process from Prometheus text.

    Shape: one `CounterSample` a series, names as exported. `_bucket` and `_created` lines, values that are not
    finite, and other exporters' names are left out. A series given twice (several exporters in one text) is
    kept once: the larger value of a total, the last of a gauge. Errors: none, what does not parse is skipped.
    """
    found: dict[tuple[str, str], float] = {}
    for match in _KEPT.finditer(text):
        name, labels, raw = match.groups()
        if name.endswith(("_bucket", "_created")):
            continue
        try:
            value = float(raw)
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        key = (name, labels or "")
        before = found.get(key)
        if before is not None and name.endswith(("_total", "_count", "_sum")):
            value = max(before, value)
        found[key] = value
        if len(found) >= SAMPLE_LIMIT:
            break
    own = any(name.startswith(_ENGINE_PREFIXES[:-1]) for name, _ in found)
    return tuple(
        CounterSample(name=name, value=value, labels=_labels(labels))
        for (name, labels), value in found.items()
        if not (own and name == "http_requests_total")
    )


def _labels(text: str) -> dict[str, str]:
    if not text:
        return {}
    if "\\" not in text:
        return dict(_LABEL.findall(text))
    return {key: _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], value) for key, value in _LABEL.findall(text)}


def read_counters(
    url: str, *, timeout_seconds: float = 1.0, token: str | None = None
) -> tuple[tuple[CounterSample, ...] | None, Endpoint, tuple[Gap, ...]]:
    """Fetch `url` once and keep the engine's counters.

    Shape: samples or None, how the endpoint answered, and a Gap for whatever is missing. `Endpoint.state` is ok,
    refused, unreachable, timeout, garbage, unauthorized or not-found. Errors: none. Source: HTTP GET.
    """
    samples, endpoint = _read(url, timeout_seconds, token)
    shown = endpoint.url
    if endpoint.state == "ok":
        if samples is not None and any(each.name.startswith(_ENGINE_PREFIXES) for each in samples):
            return samples, endpoint, ()
        reason = f"{shown} answered, but exports no counters of an engine"
        remedy = "start SGLang with --enable-metrics, vLLM without --disable-log-stats, or name another --url"
        return samples, endpoint, (Gap(source="engine-counters", reason=reason, remedy=remedy),)
    reason, remedy = {
        "refused": ("nobody listens there: the front end is starting or gone", "name the address with --url"),
        "unreachable": ("the address cannot be reached", "name the address with --url"),
        "timeout": (
            f"the port is open but gave no answer in {timeout_seconds:g} s: the front end's loop may be held",
            "a longer --timeout tells slow from stuck",
        ),
        "garbage": ("the answer is not Prometheus text", "name the address of /metrics with --url"),
        "unauthorized": ("the server wants a key", "set ENGINECTL_TOKEN to the key that the server was started with"),
        "not-found": (
            "the server has no such page",
            "start SGLang with --enable-metrics, or name the address of /metrics with --url",
        ),
    }[endpoint.state]
    detail = f" ({endpoint.detail})" if endpoint.detail else ""
    return None, endpoint, (Gap(source="engine-counters", reason=f"{shown}: {reason}{detail}", remedy=remedy),)


def find_metrics_url(pids: Sequence[int], *, timeout_seconds: float = 0.5) -> tuple[str | None, tuple[Gap, ...]]:
    """The `/metrics` address of the engine that `pids` make up.

    Ports named on a command line or commonly used are asked first, the others only when those do not listen:
    an engine's other ports belong to its own protocols. The first that answers with an engine's counters wins;
    failing that, the one that accepts and stays silent (reading it gives `Endpoint.state` timeout).
    Errors: none. Source: `/proc/PID/fd`, `/proc/PID/net/tcp{,6}`, `/proc/PID/cmdline`, HTTP GET on loopback.
    """
    if not pids:
        return None, ()
    near = [pid for pid in pids if same_namespace(pid, "net") is not False]
    if not near:
        gap = foreign_network_gap(pids[0])
        return None, (Gap(source="engine-counters", reason=gap.reason, remedy=gap.remedy),)
    found, gaps = listeners(near)
    stated = _stated_ports(near)
    usual = frozenset(WELL_KNOWN_PORTS)
    first = [each for each in found if each.port in stated] or [each for each in found if each.port in usual]
    rest = [each for each in found if each not in first and each.pid is not None]
    silent: str | None = None
    for wave, certain in ((first, True), (rest, len(rest) == 1)):
        answers = _ask_all([_url(each) for each in wave], timeout_seconds, try_tls=wave is first)
        for url, (samples, endpoint) in answers:
            if endpoint.state == "ok" and any(each.name.startswith(_ENGINE_PREFIXES) for each in samples or ()):
                return url, gaps
        silent = silent or next((url for url, (_, each) in answers if each.state == "timeout" and certain), None)
        if silent:
            return silent, gaps
        refused = next((url for url, (_, each) in answers if each.state in ("unauthorized", "not-found")), None)
        if refused and wave is first:
            return refused, gaps
    reason = "no port of these processes serves an engine's /metrics" if found else "these processes listen on no port"
    return None, (*gaps, Gap(source="engine-counters", reason=reason, remedy="name the address with --url"))


def _stated_ports(pids: Sequence[int]) -> frozenset[int]:
    """Ports that the command lines name with `--port`."""
    ports: set[int] = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read(65536).decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        for at, word in enumerate(words):
            match = _STATED_PORT.match(word)
            value = (match[1] or (words[at + 1] if at + 1 < len(words) else "")) if match else ""
            if value.isdigit():
                ports.add(int(value))
    return frozenset(ports)


def _url(listener: Listener) -> str:
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listener.address, listener.address)
    return (
        f"http://[{address}]:{listener.port}/metrics" if ":" in address else f"http://{address}:{listener.port}/metrics"
    )


_Answer = tuple[tuple[CounterSample, ...] | None, Endpoint]


def _ask_all(urls: Sequence[str], timeout_seconds: float, *, try_tls: bool) -> list[tuple[str, _Answer]]:
    """Ask all urls at once, in groups; each answer within the timeout. A port that breaks off may speak TLS."""
    answers: list[tuple[str, _Answer]] = []
    for at in range(0, len(urls), _PROBES_AT_ONCE):
        group = urls[at : at + _PROBES_AT_ONCE]
        slots: list[tuple[str, _Answer] | None] = [None] * len(group)

        def ask(slot: int, url: str, slots: list[tuple[str, _Answer] | None] = slots) -> None:
            answer = _read(url, timeout_seconds, os.environ.get("ENGINECTL_TOKEN"))
            if try_tls and answer[1].state == "garbage" and answer[1].detail.startswith(_MAYBE_TLS):
                secure = "https" + url.removeprefix("http")
                second = _read(secure, timeout_seconds, os.environ.get("ENGINECTL_TOKEN"))
                url, answer = (secure, second) if second[1].state != "garbage" else (url, answer)
            slots[slot] = (url, answer)

        threads = [threading.Thread(target=ask, args=pair, daemon=True) for pair in enumerate(group)]
        for thread in threads:
            _start(thread)
        for thread in threads:
            _join(thread, 2 * timeout_seconds + 1.0)
        answers += [each for each in slots if each is not None]
    return answers


def _read(url: str, timeout_seconds: float, token: str | None) -> _Answer:
    started = time.monotonic()
    state, detail, body = _bounded(lambda: _get(url, started + timeout_seconds, token), timeout_seconds)
    seconds = time.monotonic() - started
    samples: tuple[CounterSample, ...] | None = None
    if state == "ok":
        text = body.decode("utf-8", "replace")
        if _ANY.search(text) or not text.strip():
            samples = parse_counters(text)
        else:
            state, detail = "garbage", "not Prometheus text"
    return samples, Endpoint(url=_without_secrets(url), state=state, seconds=round(seconds, 4), detail=detail)


def _start(thread: threading.Thread) -> None:
    """Start it, or do its work here where no more threads may be made."""
    try:
        thread.start()
    except RuntimeError:
        thread.run()


def _join(thread: threading.Thread, seconds: float) -> None:
    if thread.ident is not None:
        thread.join(seconds)


_Fetched = tuple[str, str, bytes]


def _bounded(work: Callable[[], _Fetched], timeout_seconds: float) -> _Fetched:
    """Run `work` so that even a name server or a handshake that hangs cannot hold us."""
    result: list[_Fetched] = []

    def attempt() -> None:
        try:
            result.append(work())
        except TimeoutError:
            result.append(("timeout", "", b""))
        except ConnectionRefusedError:
            result.append(("refused", "", b""))
        except ConnectionError as error:
            result.append(("garbage", f"the connection broke off: {error.__class__.__name__}", b""))
        except ssl.SSLError as error:
            result.append(("garbage", f"TLS: {error.reason or error}", b""))
        except (http.client.HTTPException, ValueError) as error:
            tls = isinstance(error, http.client.BadStatusLine) and str(error).startswith("\x15\x03")
            result.append(("garbage", "the port speaks TLS" if tls else f"not HTTP: {error.__class__.__name__}", b""))
        except OSError as error:
            result.append(("unreachable", os.strerror(error.errno) if error.errno else str(error), b""))

    thread = threading.Thread(target=attempt, daemon=True)
    _start(thread)
    _join(thread, timeout_seconds + 0.25)
    return result[0] if result else ("timeout", "", b"")


def _get(url: str, deadline: float, token: str | None) -> _Fetched:
    """One GET with at most two redirects on the same host. Raises OSError and HTTPException as they come."""
    for _ in range(3):
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"no http address: {parts.scheme}")
        status, headers, body, whole = _exchange(parts, deadline, token)
        if status in (301, 302, 307, 308) and headers.get("Location"):
            target = urllib.parse.urlsplit(urllib.parse.urljoin(parts.geturl(), headers["Location"]))
            if target.hostname == parts.hostname:
                url = target.geturl()
                continue
        if status == 200:
            return "ok", "" if whole else f"cut at {SIZE_LIMIT_BYTES} bytes", body
        if status in (401, 403):
            return "unauthorized", f"HTTP {status}", b""
        return ("not-found" if status == 404 else "garbage"), f"HTTP {status}", b""
    return "garbage", "too many redirects", b""


def _exchange(
    parts: urllib.parse.SplitResult, deadline: float, token: str | None
) -> tuple[int, http.client.HTTPMessage, bytes, bool]:
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    with socket.create_connection((host, port), timeout=_left(deadline)) as plain:
        plain.settimeout(_left(deadline))
        link = _tls(host).wrap_socket(plain, server_hostname=host) if parts.scheme == "https" else plain
        try:
            path = parts.path if parts.path not in ("", "/") else "/metrics"
            path += f"?{parts.query}" if parts.query else ""
            lines = [f"GET {path} HTTP/1.1", f"Host: {parts.netloc.rpartition('@')[2]}", "Accept: text/plain"]
            lines += ["User-Agent: enginectl", "Connection: close"]
            if token:
                lines.append(f"Authorization: Bearer {token}")
            elif parts.username is not None:
                pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
                lines.append(f"Authorization: Basic {base64.b64encode(pair.encode()).decode()}")
            link.settimeout(_left(deadline))
            link.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"))
            response = http.client.HTTPResponse(_Reply(link, deadline))  # type: ignore[arg-type]
            response.begin()
            body = response.read(SIZE_LIMIT_BYTES)
            return response.status, response.headers, body, len(body) < SIZE_LIMIT_BYTES
        finally:
            link.close()


def _tls(host: str) -> ssl.SSLContext:
    """Certificates are checked, except on this machine, where engines use ones made by themselves."""
    context = ssl.create_default_context()
    if host in ("localhost", "::1") or host.startswith("127."):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Reply(io.RawIOBase):
    """What `HTTPResponse` reads from: every read is held to one common deadline."""

    def __init__(self, link: socket.socket, deadline: float) -> None:
        self._link = link
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, 65536)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._link.settimeout(_left(self._deadline))
        return self._link.recv_into(buffer)


def _without_secrets(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://{tail}" if at and "://" in head else url
