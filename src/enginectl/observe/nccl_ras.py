"""What NCCL itself knows of its ranks: the RAS subsystem of NCCL 2.24 and newer, asked over its local socket.

Every process of a job runs a RAS thread; one of them listens (localhost:28028, or NCCL_RAS_ADDR) and answers for all.
NCCL 2.28.7 and newer answer in JSON, older ones in text that names only the ranks that differ.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import psutil

from enginectl.model.observed import Communicator, CommunicatorRank, Gap
from enginectl.observe.environment import read_variable
from enginectl.observe.fds import pid_numbers, same_namespace
from enginectl.observe.sockets import Listener, listeners

DEFAULT_PORT = 28028
MOST_BYTES = 64 << 20
GATHER_SECONDS = 1.0
"""How long NCCL may wait for a rank that does not answer."""

_RANK = re.compile(
    r"^  Rank (\d{1,18})(?: has (?:launched up to operation (\d{1,18})|(not launched any operations)|status (\w+))"
    r"| reported ([^-]+?))? -- (?:GPU .* managed by process (\d{1,18}) on node (\S+)|\[)"
)
_GROUP = re.compile(r"^  (\d{1,18}) ranks? have (?:launched up to operation (\d{1,18})|(not launched any operations))")
_HEAD = re.compile(r"^#\d+-\d+ \(([0-9a-f]+)\) (INCOMPLETE|ERROR|MISMATCH)")
_COUNTS = re.compile(r"^  Communicator ranks have different (\w+) operation counts")
_STATES = {"NOCOMM": "aborted", "INIT": "starting", "FINALIZE": "ending", "ABORT": "aborted"}


class _Status(msgspec.Struct):
    init_state: int = 0
    async_error: int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    considered_dead: bool = False
    unresponsive: bool = False


class _Rank(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = -1
    status: _Status = msgspec.field(default_factory=_Status)
    collective_counts: dict[str, int] = {}


class _Communicator(msgspec.Struct):
    hash: str
    size: int | None = None
    ranks: list[_Rank] = []
    missing_ranks: list[_Rank] = []


class _Report(msgspec.Struct):
    communicators: list[_Communicator] = []


_IN_PROGRESS = 7
"""NCCL's result code of an operation that has not ended yet."""


def read_communicators(
    pids: Sequence[int], *, timeout_seconds: float = 3.0
) -> tuple[tuple[Communicator, ...] | None, tuple[Gap, ...]]:
    """The communicators of the job that `pids` belong to.

    Shape: (communicators, or None when no RAS listener belongs to `pids` or it could not be read; gaps). Without a
    listener there is no gap: most engines have none. A pid is given as seen here, only for ranks on this host.
    Errors: none. Source: the RAS socket of NCCL.
    """
    listener, port = _listener(pids)
    if listener is None:
        return None, ()
    where = f"NCCL's RAS listener of pid {listener.pid} (port {port})"
    if same_namespace(listener.pid or 0, "net") is False:
        remedy = f"sudo nsenter -t {listener.pid} -n ncclras -v"
        return None, (Gap(source="collectives", reason=f"{where} is in another network namespace", remedy=remedy),)
    try:
        text, is_json = _ask(_address(listener), port, time.monotonic() + timeout_seconds)
    except (OSError, ValueError) as error:
        words = "did not answer in time" if isinstance(error, TimeoutError) else f"could not be read ({error})"
        return None, (Gap(source="collectives", reason=f"{where} {words}", remedy="ncclras -v"),)
    try:
        return parse_report(text, _locals(pids), is_json=is_json), ()
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        reason = f"{where} answered what is not understood ({type(error).__name__})"
        return None, (Gap(source="collectives", reason=reason, remedy="ncclras -v"),)


def parse_report(text: str, local: Mapping[tuple[str, int], int], *, is_json: bool) -> tuple[Communicator, ...]:
    """A RAS report in either form.

    Shape: `local` maps (host, pid as NCCL knows it) to the pid as seen here. Of the text form only communicators with
    a remark are given. Errors: msgspec.DecodeError for JSON of another shape.
    """
    return _from_json(text, local) if is_json else tuple(_from_text(text, local))


def _listener(pids: Sequence[int]) -> tuple[Listener | None, int]:
    ports = {DEFAULT_PORT}
    for pid in pids:
        tail = (read_variable(pid, "NCCL_RAS_ADDR") or "").rpartition(":")[2]
        if tail.isdecimal() and len(tail) <= 5:
            ports.add(int(tail))
    mine, _ = listeners(pids)
    found = [each for each in mine if each.port in ports and each.pid is not None]
    return (found[0], found[0].port) if found else (None, 0)


def _address(listener: Listener) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listener.address, listener.address)


def _ask(address: str, port: int, deadline: float) -> tuple[str, bool]:
    """The report, and whether it is JSON. Errors: OSError, ValueError when the peer speaks another protocol."""
    with socket.create_connection((address, port), timeout=_left(deadline)) as link:
        reader = _Lines(link, deadline)
        link.sendall(b"CLIENT PROTOCOL 2\n")
        if not reader.line().startswith(b"SERVER PROTOCOL"):
            raise ValueError("it speaks another protocol")
        link.sendall(f"TIMEOUT {GATHER_SECONDS:g}\n".encode())
        reader.line()
        link.sendall(b"SET FORMAT json\n")
        is_json = reader.line().strip() == b"OK"
        link.sendall(b"STATUS\n" if is_json else b"VERBOSE STATUS\n")
        return reader.rest().decode("utf-8", "replace"), is_json


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Lines:
    """Reads a socket by lines, then to its end; every wait is bounded by the deadline, all bytes by `MOST_BYTES`."""

    def __init__(self, link: socket.socket, deadline: float) -> None:
        self._link, self._deadline, self._buffer, self._ended = link, deadline, bytearray(), False

    def _more(self) -> None:
        self._link.settimeout(_left(self._deadline))
        data = self._link.recv(1 << 16)
        self._ended = not data
        self._buffer += data
        if len(self._buffer) > MOST_BYTES:
            raise ValueError("its answer is too long")

    def line(self) -> bytes:
        while b"\n" not in self._buffer and not self._ended and len(self._buffer) < 4096:
            self._more()
        head, _, tail = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(tail)
        return head

    def rest(self) -> bytes:
        while not self._ended:
            self._more()
        return bytes(self._buffer)


def _locals(pids: Sequence[int]) -> dict[tuple[str, int], int]:
    """Pids as seen here by (address of this host, pid as the process itself knows it)."""
    try:
        hosts = {each.address.partition("%")[0] for rows in psutil.net_if_addrs().values() for each in rows}
    except OSError:
        hosts = {"127.0.0.1", "::1"}
    own = {inner: pid for pid in pids for inner in pid_numbers(pid)[-1:]}
    return {(host, inner): pid for host in hosts for inner, pid in own.items()}


def _from_json(text: str, local: Mapping[tuple[str, int], int]) -> tuple[Communicator, ...]:
    report = msgspec.json.decode(text.encode(), type=_Report)
    return tuple(
        Communicator(
            name=each.hash.removeprefix("0x"),
            size=each.size,
            ranks=tuple(
                CommunicatorRank(
                    rank=rank.rank,
                    pid=local.get((rank.host, rank.pid)),
                    state=_state(rank.status, missing=missing),
                    collectives=rank.collective_counts,
                )
                for ranks, missing in ((each.ranks, False), (each.missing_ranks, True))
                for rank in ranks
            ),
        )
        for each in report.communicators
    )


def _state(status: _Status, *, missing: bool) -> str:
    if missing:
        # a process that answers and does not know the communicator has left it
        return "dead" if status.considered_dead else "silent" if status.unresponsive else "aborted"
    if status.abort_flag:
        return "aborted"
    if status.finalize_called or status.destroy_flag:
        return "ending"
    if status.async_error not in (0, _IN_PROGRESS) or status.init_state not in (0, _IN_PROGRESS):
        return "failed"
    return "starting" if status.init_state == _IN_PROGRESS else "running"


def _from_text(text: str, local: Mapping[tuple[str, int], int]) -> Iterator[Communicator]:
    ranks: dict[str, dict[int, CommunicatorRank]] = {}
    groups: dict[str, list[CommunicatorRank]] = {}
    name, kind, operation, alike = "", "", "", None
    for line in text.splitlines():
        if found := _HEAD.match(line):
            name, kind, operation, alike = found[1], found[2], "", None
            ranks.setdefault(name, {})
            groups.setdefault(name, [])
        elif not name:
            continue
        elif found := _COUNTS.match(line):
            operation, alike = found[1], None
        elif (found := _GROUP.match(line)) and operation:
            alike = CommunicatorRank(members=int(found[1]), collectives={operation: int(found[2] or 0)})
            groups[name].append(alike)
        elif found := _RANK.match(line):
            number = int(found[1])
            old = ranks[name].get(number, CommunicatorRank(rank=number))
            changes: dict[str, object] = {}
            if found[6]:
                changes["pid"] = local.get((found[7], int(found[6])))
            if operation:
                count = int(found[2] or 0) if found[2] or found[3] else (alike.collectives[operation] if alike else 0)
                changes["collectives"] = {**old.collectives, operation: count}
                if alike and not (found[2] or found[3]):  # named beside the line that counts it already
                    groups[name][-1] = msgspec.structs.replace(groups[name][-1], members=groups[name][-1].members - 1)
            elif kind == "INCOMPLETE":
                changes["state"] = "silent"
            elif kind == "ERROR" or found[5]:
                changes["state"] = "failed"
            elif found[4] in _STATES:
                changes["state"] = _STATES[found[4]]
            ranks[name][number] = msgspec.structs.replace(old, **changes)
    for each, named in ranks.items():
        rest = [group for group in groups[each] if group.members > 0]
        yield Communicator(name=each, ranks=(*(named[number] for number in sorted(named)), *rest))
