"""What can be read of a process here, found out without touching it, and the one step that opens the rest.

The rights are measured, not guessed: opening `/proc/PID/mem` runs the kernel's own check for attaching and stops
nothing, and two harmless calls on our own process show whether a filter or sandbox forbids the system calls.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import re
import shutil
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from enginectl.observe.attach_errors import CAP_SYS_PTRACE, classify_attach_error
from enginectl.observe.fds import name_of, same_namespace
from enginectl.observe.gates import Environment, Gate, find_gate

__all__ = ["Preflight", "classify_attach_error", "container_of", "newest_python", "preflight", "sandbox_of"]

_GVISOR_BUILD = "Sun Jan 10 15:06:54 PST 2016"
_CONTAINER_MARKS = (
    ("kubernetes", re.compile(r"kubepods|/kubelet/")),
    ("docker", re.compile(r"/docker[/-]|docker-[0-9a-f]{12}|/var/lib/docker")),
    ("podman", re.compile(r"libpod|/var/lib/containers/storage")),
    ("containerd", re.compile(r"containerd|/cri-")),
    ("lxc", re.compile(r"/lxc[./]")),
)
# Newest Python that each py-spy reads, newest release first.
_PYTHON_OF_PY_SPY = (((0, 4, 3), (3, 15)), ((0, 4, 2), (3, 14)), ((0, 4, 0), (3, 13)), ((0, 3, 13), (3, 11)))


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """Whether stacks of a process can be read here.

    `gate` is one word: open, or what stands in the way: gone, zombie, other-user, capability, yama, not-dumpable,
    user-namespace, security-module, seccomp, no-syscall, no-tool, tool-version; stopped and traced are told too,
    although such a process can still be read without stopping it (`can_attach` stays true). `fix` is the one
    line that opens the gate here, `next_time` what makes the next hang readable, `warning` what a fix must not cost.
    """

    pid: int
    can_attach: bool
    gate: str
    reason: str = ""
    fix: str = ""
    next_time: str = ""
    warning: str = ""
    uid: int = 0
    target_uid: int | None = None
    state: str | None = None
    has_ptrace_capability: bool = False
    memory_readable: bool | None = None
    ptrace_scope: int | None = None
    dumpable: bool | None = None
    same_user_namespace: bool | None = None
    same_pid_namespace: bool | None = None
    tracer_pid: int = 0
    tracer_name: str = ""
    seccomp_filters: bool = False
    no_new_privileges: bool = False
    sandbox: str = ""
    container: str = ""
    target_container: str = ""
    python_version: str | None = None
    py_spy: str | None = None
    py_spy_version: str = ""


def preflight(
    pid: int, *, py_spy: str | None, py_spy_version: str = "", python_version: str | None = None
) -> Preflight:
    """Find the one gate that would keep py-spy from reading `pid`.

    Shape: one `Preflight`. `python_version` (`3.12`) is looked up when not given. Errors: none.
    Source: `/proc/PID`, `/proc/self/status`, `/proc/sys/kernel/yama`, `/proc/version`. Nothing is attached.
    """
    target, ours = _status(Path(f"/proc/{pid}/status")), _status(Path("/proc/self/status"))
    uid = os.geteuid()
    if not target:
        reason = f"there is no process {pid}"
        return Preflight(pid=pid, can_attach=False, gate="gone", reason=reason, uid=uid, py_spy=py_spy)
    tracer = int(target.get("TracerPid", "0") or 0)
    caps = int(ours.get("CapEff", "0"), 16)
    version = python_version or _python_version(pid)
    env = Environment(
        pid=pid,
        uid=uid,
        target_uid=int(target.get("Uid", "-1").split()[0]),
        state=target.get("State", "?")[:1],
        capable=bool(caps >> CAP_SYS_PTRACE & 1),
        bounded=not int(ours.get("CapBnd", "0"), 16) >> CAP_SYS_PTRACE & 1,
        more_capable_target=bool(int(target.get("CapPrm", "0"), 16) & ~caps),
        memory=_memory_access(pid),
        syscalls=_syscall_gate(),
        ptrace_scope=ptrace_scope(),
        dumpable=_dumpable(pid, target),
        same_user_namespace=_same_user_namespace(pid),
        tracer_pid=tracer,
        tracer_name=name_of(tracer) if tracer else "",
        no_new_privileges=ours.get("NoNewPrivs") == "1",
        sandbox=_sandbox(pid),
        container=_our_container(),
        container_name=_container_name(),
        python_version=version,
        newest_python=newest_python(py_spy_version),
        py_spy=py_spy,
        py_spy_version=py_spy_version,
        privileged_tool=_privileged(py_spy),
        has_sudo=shutil.which("sudo") is not None,
    )
    gate: Gate = find_gate(env)
    return Preflight(
        pid=pid,
        can_attach=gate.can_attach,
        gate=gate.name,
        reason=gate.reason,
        fix=gate.fix,
        next_time=gate.next_time,
        warning=gate.warning,
        uid=uid,
        target_uid=env.target_uid,
        state=env.state,
        has_ptrace_capability=env.capable,
        memory_readable=None if env.memory is None else env.memory == 0,
        ptrace_scope=env.ptrace_scope,
        dumpable=env.dumpable,
        same_user_namespace=env.same_user_namespace,
        same_pid_namespace=_same_pid_namespace(pid, target),
        tracer_pid=tracer,
        tracer_name=env.tracer_name,
        seccomp_filters=ours.get("Seccomp") == "2",
        no_new_privileges=env.no_new_privileges,
        sandbox=env.sandbox,
        container=env.container,
        target_container=_container_of_pid(pid),
        python_version=version,
        py_spy=py_spy,
        py_spy_version=py_spy_version,
    )


def ptrace_scope() -> int | None:
    """Yama's `ptrace_scope` (0..3); None when the kernel has no Yama."""
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return None


def newest_python(py_spy_version: str) -> tuple[int, int] | None:
    """The newest Python that this py-spy reads, None when its version is not known."""
    numbers = tuple(int(each) for each in re.findall(r"\d+", py_spy_version)[:3])
    if not numbers:
        return None
    return next((python for least, python in _PYTHON_OF_PY_SPY if numbers >= least), (3, 10))


def sandbox_of(version: str, executable: str = "", command: str = "") -> str:
    """`gvisor`, `qemu-user` or an empty string, from `/proc/version`, the target's program and its first word."""
    if _GVISOR_BUILD in version or "gVisor" in version:
        return "gvisor"
    if any(os.path.basename(each).startswith("qemu-") for each in (executable, command)):
        return "qemu-user"
    return ""


def container_of(groups: str, mounts: str = "", marks: Mapping[str, bool] | None = None) -> str:
    """Which runtime keeps a process: kubernetes, docker, podman, containerd, lxc, or an empty string.

    `groups` and `mounts` are the texts of `/proc/PID/cgroup` and the root line of `/proc/PID/mountinfo`; `marks`
    tells which of kubernetes, docker and podman left their sign in the environment or the file system.
    """
    for name, present in (marks or {}).items():
        if present:
            return name
    for text in (groups, mounts):
        for name, pattern in _CONTAINER_MARKS:
            if pattern.search(text):
                return name
    return ""


def _our_container() -> str:
    marks = {
        "kubernetes": "KUBERNETES_SERVICE_HOST" in os.environ or os.path.isdir("/var/run/secrets/kubernetes.io"),
        "docker": os.path.exists("/.dockerenv"),
        "podman": os.path.exists("/run/.containerenv"),
    }
    return container_of(_text(Path("/proc/self/cgroup")), _root_mount("self"), marks)


def _container_name() -> str:
    """Id of the container we are in, in a pod its name; empty when nothing tells."""
    host = socket.gethostname()
    found = re.search(r"/(?:overlay-)?containers/([0-9a-f]{12})", _text(Path("/proc/self/mountinfo")))
    if found is not None and "KUBERNETES_SERVICE_HOST" not in os.environ:
        return found[1]
    return host if "KUBERNETES_SERVICE_HOST" in os.environ or re.fullmatch(r"[0-9a-f]{12}", host) else ""


def _container_of_pid(pid: int) -> str:
    return container_of(_text(Path(f"/proc/{pid}/cgroup")), _root_mount(str(pid)))


def _root_mount(pid: str) -> str:
    lines = _text(Path(f"/proc/{pid}/mountinfo")).splitlines()
    return next((line for line in lines if line.split(" ")[4:5] == ["/"]), "")


def _sandbox(pid: int) -> str:
    try:
        executable = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        executable = ""
    return sandbox_of(_text(Path("/proc/version")), executable, _text(Path(f"/proc/{pid}/cmdline")).split("\0")[0])


def _status(path: Path) -> dict[str, str]:
    return {key: value.strip() for key, _, value in (line.partition(":") for line in _text(path).splitlines())}


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _memory_access(pid: int) -> int | None:
    """0 when the kernel lets us open the target's memory, the errno when not, None when it has none or is gone."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError as error:
        return error.errno
    except OSError:
        return None
    return 0


@functools.lru_cache(maxsize=1)
def _syscall_gate() -> str:
    """`seccomp` or `no-syscall` when the calls for attaching fail even on ourselves, else an empty string."""
    libc = ctypes.CDLL(None, use_errno=True)
    there, here = ctypes.create_string_buffer(b"x", 1), ctypes.create_string_buffer(1)

    class Span(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))

    local, remote = Span(ctypes.addressof(here), 1), Span(ctypes.addressof(there), 1)
    numbers: list[int] = []
    try:
        if libc.process_vm_readv(os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) != 1:
            numbers.append(ctypes.get_errno())
        ctypes.set_errno(0)
        if libc.ptrace(7, os.getpid(), None, None) == -1:  # continue a process that is not traced: ESRCH
            numbers.append(ctypes.get_errno())
    except AttributeError:
        return ""
    if errno.ENOSYS in numbers:
        return "no-syscall"
    return "seccomp" if errno.EPERM in numbers or errno.EACCES in numbers else ""


def _dumpable(pid: int, target: Mapping[str, str]) -> bool | None:
    """The kernel gives `/proc/PID` of a process that is not dumpable to root; of root's own it cannot be told."""
    try:
        owner = os.stat(f"/proc/{pid}/environ").st_uid
        effective = int(target["Uid"].split()[1])
    except (OSError, KeyError, IndexError, ValueError):
        return None
    return None if effective == 0 else owner == effective


def _same_user_namespace(pid: int) -> bool | None:
    """By the namespace itself, or by its uid map, which everybody may read."""
    told = same_namespace(pid, "user")
    if told is None:
        theirs, ours = _text(Path(f"/proc/{pid}/uid_map")), _text(Path("/proc/self/uid_map"))
        return theirs.split() == ours.split() if theirs and ours else None
    return told


def _same_pid_namespace(pid: int, target: Mapping[str, str]) -> bool | None:
    told = same_namespace(pid, "pid")
    return told if told is not None else len(target.get("NSpid", "0").split()) == 1


def _privileged(py_spy: str | None) -> bool:
    """Whether the py-spy file itself carries rights (setuid root or file capabilities)."""
    if py_spy is None:
        return False
    try:
        told = os.stat(py_spy)
        if told.st_uid == 0 and told.st_mode & stat.S_ISUID:
            return True
        return bool(os.getxattr(py_spy, "security.capability"))
    except OSError:
        return False


def _python_version(pid: int) -> str | None:
    """`3.12` from the name of the target's program; None when that does not tell."""
    try:
        found = re.search(r"python(3\.\d+)", os.path.basename(os.readlink(f"/proc/{pid}/exe")))
    except OSError:
        return None
    return found[1] if found else None
