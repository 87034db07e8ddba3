"""Preflight: what it measures on real processes, and the gate and opener of each environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import msgspec
import pytest

from enginectl.observe.gates import Environment, find_gate
from enginectl.observe.preflight import (
    Preflight,
    container_of,
    newest_python,
    preflight,
    ptrace_scope,
    sandbox_of,
)

LOOK = """
import sys, msgspec
from enginectl.observe.preflight import preflight
told = preflight(int(sys.argv[1]), py_spy="/opt/py-spy", py_spy_version="0.4.3")
sys.stdout.buffer.write(msgspec.json.encode(told))
"""
# A filter that makes ptrace and process_vm_readv fail with the errno given, then the look.
FILTERED = """
import ctypes, platform, struct, sys
calls = {"x86_64": (101, 310), "aarch64": (117, 270)}[platform.machine()]
code = [(0x20, 0, 0, 0)]
code += [(0x15, len(calls) - at, 0, number) for at, number in enumerate(calls)]
code += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | int(sys.argv[2]))]
raw = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in code))
program = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(raw)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
if libc.prctl(22, 2, program, 0, 0):
    sys.exit("this kernel takes no filter")
"""


@pytest.fixture
def target() -> Iterator[int]:
    code = "print('up', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    child.stdout.readline()
    yield child.pid
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()


@pytest.fixture
def look() -> Callable[..., Preflight]:
    """Preflight of a pid, run as somebody else."""

    def run(pid: int, *before: str, code: str = "", argument: str = "") -> Preflight:
        words = [*before, sys.executable, "-c", code + LOOK, str(pid), argument]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(words, env=env, capture_output=True, timeout=60, check=False)
        if done.returncode:
            pytest.skip(f"this machine refuses {' '.join(before) or 'the filter'}: {done.stderr[-200:].decode()}")
        return msgspec.json.decode(done.stdout, type=Preflight)

    return run


def test_our_own_child_is_open(target: int) -> None:
    told = preflight(target, py_spy="/opt/py-spy", py_spy_version="0.4.3")
    if told.memory_readable is False:
        pytest.skip(f"this machine forbids attaching to a child: {told.reason}")
    assert (told.can_attach, told.gate, told.fix) == (True, "open", "")
    assert told.python_version == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (told.same_user_namespace, told.same_pid_namespace) == (True, True)
    assert told.tracer_pid == 0


def test_nothing_is_touched(target: int) -> None:
    def switches() -> str:
        with open(f"/proc/{target}/status") as file:
            return file.read().split("voluntary_ctxt_switches", 1)[1]

    before = switches()
    preflight(target, py_spy=None)
    assert switches() == before


def test_gone_zombie_and_no_tool(target: int) -> None:
    assert preflight(target, py_spy=None).gate == "no-tool"
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert preflight(child.pid, py_spy="/opt/py-spy").gate == "zombie"
    child.wait()
    gone = preflight(child.pid, py_spy="/opt/py-spy")
    assert (gone.gate, gone.can_attach) == ("gone", False)


def test_a_newer_python_than_the_tool(target: int) -> None:
    told = preflight(target, py_spy="/opt/py-spy", py_spy_version="0.4.1", python_version="3.14")
    if told.memory_readable:
        assert (told.gate, told.can_attach) == ("tool-version", False)
        assert "/opt/py-spy" in told.reason and "3.14" in told.reason


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to take a capability away")
def test_root_without_the_capability(target: int, look: Callable[..., Preflight]) -> None:
    told = look(target, "setpriv", "--bounding-set=-all", "--inh-caps=-all")
    assert (told.gate, told.can_attach, told.uid) == ("capability", False, 0)
    assert not told.has_ptrace_capability
    assert "sudo" not in told.fix


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a user namespace that root's processes are outside of")
def test_root_of_another_user_namespace(target: int, look: Callable[..., Preflight]) -> None:
    told = look(target, "unshare", "--user", "--map-root-user")
    assert (told.gate, told.same_user_namespace) == ("user-namespace", False)
    assert told.has_ptrace_capability


@pytest.mark.parametrize(("number", "gate"), [("1", "seccomp"), ("38", "no-syscall")])
def test_a_seccomp_filter_is_found_without_touching_the_target(
    target: int, look: Callable[..., Preflight], number: str, gate: str
) -> None:
    told = look(target, code=FILTERED, argument=number)
    if told.memory_readable is False:
        pytest.skip(f"this machine forbids attaching to begin with: {told.reason}")
    assert (told.gate, told.can_attach) == (gate, False)
    assert told.seccomp_filters and told.no_new_privileges


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_process_that_made_itself_unreadable(look: Callable[..., Preflight]) -> None:
    code = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print('up', flush=True); input()"
    words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    child = subprocess.Popen([*words, sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    try:
        if child.stdout.readline() != b"up\n":
            pytest.skip("another user cannot start this Python")
        told = look(child.pid, *words)
        assert (told.gate, told.dumpable, told.uid, told.target_uid) == ("not-dumpable", False, 65534, 65534)
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_ptrace_scope_is_read_or_absent() -> None:
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as file:
            assert ptrace_scope() == int(file.read())
    except OSError:
        assert ptrace_scope() is None


@pytest.mark.parametrize(
    ("version", "python"),
    [("0.4.3", (3, 15)), ("0.4.2", (3, 14)), ("0.4.1", (3, 13)), ("0.3.14", (3, 11)), ("0.3.3", (3, 10)), ("", None)],
)
def test_newest_python_by_version_of_the_tool(version: str, python: tuple[int, int] | None) -> None:
    assert newest_python(version) == python


@pytest.mark.parametrize(
    ("groups", "mounts", "marks", "runtime"),
    [
        ("0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-ab.scope", "", {}, "kubernetes"),
        ("12:cpu:/docker/0123456789abcdef", "", {}, "docker"),
        ("0::/system.slice/docker-0123456789ab.scope", "", {}, "docker"),
        ("0::/", "1 2 0:3 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/X", {}, "docker"),
        ("0::/machine.slice/libpod-0123.scope/container", "", {}, "podman"),
        ("0::/system.slice/containerd.service/x", "", {}, "containerd"),
        ("0::/", "", {"kubernetes": True}, "kubernetes"),
        ("0::/", "", {"docker": True}, "docker"),
        ("0::/user.slice/user-1000.slice", "1 2 8:1 / / rw - ext4 /dev/sda1 rw", {"docker": False}, ""),
    ],
)
def test_container_runtimes(groups: str, mounts: str, marks: dict[str, bool], runtime: str) -> None:
    assert container_of(groups, mounts, marks) == runtime


def test_sandboxes() -> None:
    assert sandbox_of("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016") == "gvisor"
    assert sandbox_of("Linux version 6.8.0", "/usr/bin/qemu-aarch64-static") == "qemu-user"
    assert sandbox_of("Linux version 6.8.0", "/usr/bin/python3.12", "python") == ""


DENIED = Environment(pid=7, uid=1000, target_uid=1000, memory=13, py_spy="/opt/py-spy")


@pytest.mark.parametrize(
    ("changes", "gate", "fix"),
    [
        ({"ptrace_scope": 1, "has_sudo": True}, "yama", 'sudo env "PATH=$PATH" enginectl doctor --pid 7'),
        ({"ptrace_scope": 1}, "yama", "sysctl -w kernel.yama.ptrace_scope=0   # as root"),
        ({"ptrace_scope": 2, "has_sudo": True}, "yama", 'sudo env "PATH=$PATH" enginectl doctor --pid 7'),
        ({"ptrace_scope": 3, "uid": 0, "capable": True}, "yama", ""),
        ({"target_uid": 0, "has_sudo": True}, "other-user", 'sudo env "PATH=$PATH" enginectl doctor --pid 7'),
        (
            {"target_uid": 0, "has_sudo": True, "no_new_privileges": True},
            "other-user",
            "as root: enginectl doctor --pid 7",
        ),
        (
            {"uid": 0, "bounded": True},
            "capability",
            "run it from a root shell of the host that has CAP_SYS_PTRACE, not",
        ),
        ({"more_capable_target": True}, "capability", "as root: "),
        ({"dumpable": False}, "not-dumpable", "as root: "),
        ({"same_user_namespace": False}, "user-namespace", "as root: "),
        ({"capable": True, "uid": 0}, "security-module", "cat /proc/7/attr/current"),
        (
            {"container": "docker", "container_name": "abc"},
            "security-module",
            "docker run --rm -it --pid=container:abc --cap-",
        ),
        (
            {"container": "podman", "uid": 0},
            "capability",
            "podman run --rm -it --pid=container:CONTAINER --cap-add=SYS",
        ),
        (
            {"container": "kubernetes", "uid": 0, "container_name": "pod-1"},
            "capability",
            "kubectl debug -it pod-1 --image=",
        ),
        ({"memory": 0, "syscalls": "seccomp", "container": "docker"}, "seccomp", "docker run "),
        ({"memory": 0, "state": "Z"}, "zombie", ""),
        ({"privileged_tool": True}, "open", ""),
    ],
)
def test_gate_and_opener(changes: dict[str, object], gate: str, fix: str) -> None:
    told = find_gate(msgspec.structs.replace(DENIED, **changes))
    assert told.name == gate
    assert told.fix.startswith(fix) and bool(told.fix) == bool(fix)
    assert "\n" not in told.fix


def test_what_a_redeploy_costs_is_said_where_one_is_tempting() -> None:
    for runtime in ("docker", "podman", "containerd", "kubernetes"):
        told = find_gate(msgspec.structs.replace(DENIED, container=runtime))
        assert "loses this hang" in told.warning
        assert "SYS_PTRACE" in told.next_time
