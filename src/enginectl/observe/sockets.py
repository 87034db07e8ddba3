"""TCP seen from outside: who listens, and which client connections wait for an answer.

Source: INET_DIAG over netlink (what `ss -tin` shows), `/proc/PID/net/tcp{,6}` where that cannot be had.
No payload is read and nothing is sent to anybody.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from enginectl.model.observed import Gap
from enginectl.observe.fds import fd_links, same_namespace

_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_INET_DIAG_INFO = 2
_ESTABLISHED = 1
_LISTEN = 10
_NETLINK_SOCK_DIAG = 4
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_DEADLINE_SECONDS = 0.5
DELAYED_ACK_MS = 400
AGES = 64

# Offsets in the kernel's struct tcp_info (uapi/linux/tcp.h).
_LAST_DATA_SENT = 44
_LAST_DATA_RECV = 52
_LAST_ACK_RECV = 56
_BYTES_RECEIVED = 128
_BYTES_SENT = 200


class Listener(msgspec.Struct, frozen=True):
    """One listening TCP socket. `pid` is None when the descriptors of the pids could not be read."""

    address: str
    port: int
    pid: int | None
    owner_uid: int


class Connection(msgspec.Struct, frozen=True):
    """One established TCP connection. The two ages are milliseconds before the read."""

    local: tuple[str, int]
    remote: tuple[str, int]
    inode: int
    unread_bytes: int
    unsent_bytes: int
    bytes_received: int
    bytes_sent: int | None
    received_age_ms: int
    sent_age_ms: int
    acknowledged_age_ms: int

    @property
    def owes(self) -> bool | None:
        """Whether something was received and nothing was sent since; None when the order of the two is lost.

        The kernel's ages have the grain of its clock tick (4 ms at 250 Hz), and a client in a loop sends its next
        request at once. Then an acknowledgement that came a little later than both tells that the answer went out
        last: a client that says nothing more acknowledges after its delay (40 to 200 ms), one that has sent a request
        did so with it. One that comes later still may answer a keep-alive probe and tells nothing.
        """
        if not self.bytes_received:
            return False
        if self.bytes_sent == 0:
            return True
        if self.received_age_ms != self.sent_age_ms:
            return self.received_age_ms < self.sent_age_ms
        return False if 0 < self.sent_age_ms - self.acknowledged_age_ms <= DELAYED_ACK_MS else None


class Clients(msgspec.Struct, frozen=True, kw_only=True):
    """Client connections that received a request and were sent nothing since.

    `unanswered` is their count, `unanswered_seconds` the age of the oldest (None when there is none). `unclear` counts
    those for which it cannot be told, `unclear_seconds` holds the ages of the oldest 64 of them, oldest first. Counts
    are None when nothing could be read.
    """

    unanswered: int | None = None
    unanswered_seconds: float | None = None
    unclear: int | None = None
    unclear_seconds: tuple[float, ...] = ()
    gaps: tuple[Gap, ...] = ()


def listeners(pids: Sequence[int]) -> tuple[tuple[Listener, ...], tuple[Gap, ...]]:
    """Listening TCP sockets of `pids`.

    Shape: one `Listener` a socket. When descriptors may not be read, those of the same user in the same
    network namespace with `pid=None`, and a Gap. Errors: none. Source: `/proc/PID/fd`, INET_DIAG.
    """
    return _listeners(pids, *socket_owners(pids))


def _listeners(
    pids: Sequence[int], owners: dict[int, int], unread: list[int]
) -> tuple[tuple[Listener, ...], tuple[Gap, ...]]:
    found: dict[int, Listener] = {}
    for pid in _one_per_namespace(pids):
        for address, port, inode, uid in _listening(pid):
            if inode in owners:
                found[inode] = Listener(address, port, owners[inode], uid)
    if not unread:
        return tuple(found.values()), ()
    for pid in unread:
        try:
            uid = os.stat(f"/proc/{pid}").st_uid
        except OSError:
            continue  # it has ended meanwhile
        for address, port, inode, owner in _listening(pid):
            if owner == uid and inode not in found:
                found[inode] = Listener(address, port, None, owner)
    gap = Gap(
        source="sockets",
        reason=f"the open files of pid {unread[0]} may not be read, so its ports are not certain",
        remedy="run enginectl as the same user as the engine, or as root",
    )
    return tuple(found.values()), (gap,)


def read_clients(pids: Sequence[int], *, ports: Iterable[int] | None = None) -> Clients:
    """Which client connections of these processes wait for an answer.

    `ports` restricts to these listening ports. Connections among `pids`, and our own, do not count.
    A response that stopped half way is not seen here: its last byte went out after its last came in.
    Errors: none. Source: INET_DIAG `tcp_info`.
    """
    if not pids:
        return Clients()
    near = [pid for pid in pids if same_namespace(pid, "net") is not False]
    if not near:
        return Clients(gaps=(foreign_network_gap(pids[0]),))
    owners, unread = socket_owners(near)
    wanted = frozenset(ports) if ports is not None else None
    gaps: tuple[Gap, ...] = ()
    if wanted is None:
        listening, gaps = _listeners(near, owners, unread)
        wanted = frozenset(each.port for each in listening if each.pid is not None)
        if not wanted and gaps:
            return Clients(gaps=gaps)
    if not wanted:
        if ports is not None:
            return Clients(unanswered=0, unclear=0, gaps=gaps)
        # nothing listens here, so nobody can be seen waiting: that is not the same as nobody waits
        return Clients(gaps=gaps)
    try:
        connections = read_connections(wanted)
    except (OSError, TimeoutError, struct.error) as error:
        reason = f"the kernel gave no TCP diagnostics ({error.__class__.__name__}: {error})"
        return Clients(gaps=(*gaps, Gap(source="sockets", reason=reason, remedy="modprobe tcp_diag on the host")))
    internal = owners.keys() | socket_owners([os.getpid()])[0].keys()
    inside = {(each.local, each.remote) for each in connections if each.inode in internal}
    links = [each for each in connections if each.local[1] in wanted and (each.remote, each.local) not in inside]
    owed = [each.received_age_ms / 1000 for each in links if each.owes]
    unclear = [each.received_age_ms / 1000 for each in links if each.owes is None]
    return Clients(
        unanswered=len(owed),
        unanswered_seconds=max(owed, default=None),
        unclear=len(unclear),
        unclear_seconds=tuple(sorted(unclear, reverse=True)[:AGES]),
        gaps=gaps,
    )


def socket_owners(pids: Iterable[int]) -> tuple[dict[int, int], list[int]]:
    """Pid by inode of each socket that `pids` hold open, and the pids whose descriptors may not be read."""
    owners: dict[int, int] = {}
    unread: list[int] = []
    for pid in pids:
        links = fd_links(pid)
        if links is None:
            if os.path.exists(f"/proc/{pid}"):
                unread.append(pid)
            continue
        for link in links.values():
            if link.startswith("socket:["):
                owners.setdefault(int(link[8:-1]), pid)
    return owners, unread


def foreign_network_gap(pid: int) -> Gap:
    """The Gap for a process whose sockets live in another network namespace."""
    return Gap(
        source="sockets",
        reason=f"pid {pid} is in another network namespace",
        remedy=f"run enginectl inside its container, or: sudo nsenter -t {pid} -n enginectl doctor --pid {pid}",
    )


def read_connections(ports: frozenset[int]) -> tuple[Connection, ...]:
    """Established TCP connections with one end at `ports`, both ends when both are on this host.

    Errors: OSError or TimeoutError when the kernel refuses or does not answer in 0.5 s.
    """
    found: list[Connection] = []

    def keep(data: bytes, start: int, end: int, family: int) -> None:
        each = _connection(data, start, end, family, ports)
        if each is not None:
            found.append(each)

    _dump(_ESTABLISHED, 1 << (_INET_DIAG_INFO - 1), keep)
    return tuple(found)


def _dump(state: int, extensions: int, keep: Callable[[bytes, int, int, int], None]) -> None:
    """Ask the kernel for all TCP sockets in `state`; `keep` gets the place of each message."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
        for family in (socket.AF_INET, socket.AF_INET6):
            body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, extensions, 0, 1 << state) + bytes(48)
            header = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, family, 0)
            link.send(header + body)
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the dump did not end in time")
                link.settimeout(left)
                if _messages(link.recv(1 << 17), family, keep):
                    break


def _messages(data: bytes, family: int, keep: Callable[[bytes, int, int, int], None]) -> bool:
    """Walk one datagram; True when it ends the dump."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        size, kind, _, _, _ = _HEADER.unpack_from(data, offset)
        if kind == _NLMSG_DONE:
            return True
        if kind == _NLMSG_ERROR:
            number = -struct.unpack_from("=i", data, offset + _HEADER.size)[0]
            if number:
                raise OSError(number, os.strerror(number))
            return True
        if size < _HEADER.size:
            raise OSError("torn netlink message")
        keep(data, offset + _HEADER.size, offset + size, family)
        offset += (size + 3) & ~3
    return False


def _connection(data: bytes, start: int, end: int, family: int, ports: frozenset[int]) -> Connection | None:
    """Decode one `inet_diag_msg` with its `tcp_info`; None when the ports do not concern us."""
    source, destination = struct.unpack_from("!HH", data, start + 4)
    if source not in ports and destination not in ports:
        return None
    width = 4 if family == socket.AF_INET else 16
    local = _address(family, data[start + 8 : start + 8 + width])
    remote = _address(family, data[start + 24 : start + 24 + width])
    unread, unsent, _, inode = struct.unpack_from("=IIII", data, start + 56)
    offset = start + 72
    while offset + _ATTRIBUTE.size <= end:
        size, kind = _ATTRIBUTE.unpack_from(data, offset)
        if size < _ATTRIBUTE.size:
            return None
        if kind == _INET_DIAG_INFO:
            facts = data[offset + 4 : offset + size]
            if len(facts) < _BYTES_RECEIVED + 8:
                return None
            sent = struct.unpack_from("=Q", facts, _BYTES_SENT)[0] if len(facts) >= _BYTES_SENT + 8 else None
            return Connection(
                local=(local, source),
                remote=(remote, destination),
                inode=inode,
                unread_bytes=unread,
                unsent_bytes=unsent,
                bytes_received=struct.unpack_from("=Q", facts, _BYTES_RECEIVED)[0],
                bytes_sent=sent,
                received_age_ms=struct.unpack_from("=I", facts, _LAST_DATA_RECV)[0],
                sent_age_ms=struct.unpack_from("=I", facts, _LAST_DATA_SENT)[0],
                acknowledged_age_ms=struct.unpack_from("=I", facts, _LAST_ACK_RECV)[0],
            )
        offset += (size + 3) & ~3
    return None


def _address(family: int, raw: bytes) -> str:
    """Text of an address; an IPv4 address mapped into IPv6 reads as IPv4."""
    if family == socket.AF_INET6 and raw[:12] == bytes(10) + b"\xff\xff":
        return socket.inet_ntop(socket.AF_INET, raw[12:])
    return socket.inet_ntop(family, raw)


def _one_per_namespace(pids: Sequence[int]) -> list[int]:
    """One pid of each network namespace; those whose namespace is unreadable count as one."""
    seen: dict[str, int] = {}
    for pid in pids:
        try:
            key = os.readlink(f"/proc/{pid}/ns/net")
        except OSError:
            key = "?"
        if os.path.exists(f"/proc/{pid}"):
            seen.setdefault(key, pid)
    return list(seen.values())


def _listening(pid: int) -> list[tuple[str, int, int, int]]:
    """(address, port, inode, uid) of every listening TCP socket in the network namespace of `pid`."""
    if same_namespace(pid, "net") is False:
        return _listening_table(pid)
    rows: list[tuple[str, int, int, int]] = []

    def keep(data: bytes, start: int, end: int, family: int) -> None:
        width = 4 if family == socket.AF_INET else 16
        uid, inode = struct.unpack_from("=II", data, start + 64)
        port = struct.unpack_from("!H", data, start + 4)[0]
        rows.append((_address(family, data[start + 8 : start + 8 + width]), port, inode, uid))

    try:
        _dump(_LISTEN, 0, keep)
    except (OSError, struct.error):
        return _listening_table(pid)
    return rows


def _listening_table(pid: int) -> list[tuple[str, int, int, int]]:
    """The same from `/proc/PID/net`, which also works where netlink does not; slower by milliseconds."""
    rows: list[tuple[str, int, int, int]] = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            with open(f"/proc/{pid}/net/{name}", encoding="ascii", errors="replace") as file:
                next(file, None)
                for line in file:
                    field = line.split()
                    if len(field) < 10 or field[3] != "0A":
                        continue
                    host, _, port = field[1].partition(":")
                    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
                    raw = b"".join(struct.pack("=I", word) for word in words)
                    rows.append((_address(family, raw), int(port, 16), int(field[9]), int(field[7])))
        except (OSError, ValueError):
            continue
    return rows
