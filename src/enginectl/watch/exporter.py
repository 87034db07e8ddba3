"""A Prometheus exporter of the newest picture. Without a picture (no engine) its series are gone."""

from __future__ import annotations

import os
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import msgspec

from enginectl.diagnose.measures import Measures
from enginectl.errors import UsageError
from enginectl.model.diagnosed import Diagnosis

if TYPE_CHECKING:
    from prometheus_client.core import Metric

REQUEST_SECONDS = 5.0


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """What the exporter shows: shares per (thread role, wait class), finding codes, the device and the engine."""

    ratios: dict[tuple[str, str], float]
    codes: tuple[str, ...]
    device_busy_ratio: float | None
    pause_seconds: float
    tick_seconds: float


def picture_of(diagnosis: Diagnosis, measures: Measures, pause_seconds: float, tick_seconds: float) -> Picture:
    """The picture of one moment: shares are means over the threads of a role, 0..1."""
    groups: dict[str, list[dict[str, float]]] = defaultdict(list)
    for thread in measures.threads:
        if thread.class_ratios:
            groups[thread.role].append(thread.class_ratios)
    ratios = {
        (role, name): sum(row.get(name, 0.0) for row in rows) / len(rows)
        for role, rows in groups.items()
        for name in {name for row in rows for name in row}
    }
    return Picture(
        ratios=ratios,
        codes=tuple(dict.fromkeys(finding.code for finding in diagnosis.findings)),
        device_busy_ratio=measures.device.busy_ratio,
        pause_seconds=pause_seconds,
        tick_seconds=tick_seconds,
    )


class Board:
    """Where the loop leaves the newest picture, and the totals that outlive an engine."""

    def __init__(self) -> None:
        self.picture: Picture | None = None
        self.ticks = 0
        self.fires: dict[str, int] = {}

    def collect(self) -> Iterator[Metric]:
        """All series, for the client library."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        seen = self.picture
        yield GaugeMetricFamily("enginectl_up", "1 while an engine is observed.", value=float(seen is not None))
        if seen is not None:
            yield from _of_engine(seen)
        fires = CounterMetricFamily("enginectl_trigger_fires", "How often each trigger fired.", labels=["trigger"])
        for trigger, count in sorted(self.fires.items()):
            fires.add_metric([trigger], count)
        yield fires
        yield CounterMetricFamily("enginectl_snapshots", "Snapshots taken.", value=self.ticks)
        spent = os.times()
        seconds = spent.user + spent.system + spent.children_user + spent.children_system
        yield CounterMetricFamily("enginectl_cpu_seconds", "CPU of enginectl and its helpers.", value=seconds)
        yield GaugeMetricFamily("enginectl_resident_bytes", "Memory of enginectl.", value=_resident_bytes())


def _of_engine(seen: Picture) -> Iterator[Metric]:
    """The series that come and go with the engine."""
    from prometheus_client.core import GaugeMetricFamily

    state = GaugeMetricFamily(
        "enginectl_thread_state_ratio", "Share of samples, mean over the role.", labels=["role", "wait_class"]
    )
    for labels, value in sorted(seen.ratios.items()):
        state.add_metric(list(labels), value)
    finding = GaugeMetricFamily("enginectl_finding", "1 for each finding.", labels=["code"])
    for code in seen.codes:
        finding.add_metric([code], 1.0)
    yield from (state, finding)
    busy, pause = "Share of real work of the devices.", "Longest pause of the target for one snapshot, an upper bound."
    if seen.device_busy_ratio is not None:
        yield GaugeMetricFamily("enginectl_device_busy_ratio", busy, value=seen.device_busy_ratio)
    yield GaugeMetricFamily("enginectl_target_pause_seconds", pause, value=seen.pause_seconds)
    yield GaugeMetricFamily("enginectl_tick_seconds", "Time of the newest look.", value=seen.tick_seconds)


def _resident_bytes() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return float(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: object) -> None: ...


def serve(board: Board, listen: str) -> Callable[[], None]:
    """Serve the board at `HOST:PORT`; the result ends it.

    Errors: UsageError without prometheus-client, or when the address cannot be used.
    """
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app
    except ModuleNotFoundError as error:
        raise UsageError("--listen needs prometheus-client", fix="pip install 'enginectl[watch]'") from error
    host, _, port = listen.rpartition(":")
    kind = _Server6 if ":" in host else _Server
    if not port.isdigit():
        raise UsageError(f"--listen {listen}: HOST:PORT is wanted, as in 127.0.0.1:9178")
    registry = CollectorRegistry()
    registry.register(board)
    try:
        server = make_server(host.strip("[]") or "127.0.0.1", int(port), make_wsgi_app(registry), kind, _Handler)
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen on {listen}: {error}") from error
    thread = threading.Thread(target=server.serve_forever, name="exporter", daemon=True)
    thread.start()

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join(REQUEST_SECONDS + 1.0)

    return close
