"""Every public report of a failed or harmful attach, by its id, at the level that it can have in a test.

Recorded messages are classified; denied, stopped, traced, namespaced and crippled attaches are real.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import msgspec
import pytest

import enginectl.observe
from enginectl.api import observe
from enginectl.diagnose.diagnose import diagnose
from enginectl.knowledge.loader import load
from enginectl.model.observed import (
    Frame,
    GpuSample,
    StatedFacts,
    StatedProgress,
    StatedRequests,
    ThreadSample,
)
from enginectl.observe import stacks
from enginectl.observe.fds import state_of
from enginectl.observe.gates import Environment, find_gate
from enginectl.observe.preflight import (
    Preflight,
    classify_attach_error,
    container_of,
    preflight,
    ptrace_scope,
    sandbox_of,
)
from enginectl.read import read

PTRACE = 1 << 19
NO_CAPS = 0xA80425FB  # what a container runtime leaves to root by default
PY_SPY = next(
    (
        str(each)
        for each in (Path(sys.executable).parent / "py-spy", shutil.which("py-spy"))
        if each and os.path.exists(each)
    ),
    None,
)
needs_py_spy = pytest.mark.skipif(PY_SPY is None, reason="py-spy is not installed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to take rights away or make namespaces")

TARGET = "def waiting_here():\n    print('up', flush=True)\n    input()\nwaiting_here()"
LOOK = """
import sys, msgspec
from enginectl.observe.preflight import preflight
sys.stdout.buffer.write(msgspec.json.encode(preflight(int(sys.argv[1]), py_spy="/opt/py-spy", py_spy_version="0.4.3")))
"""
TRACER = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
print(libc.ptrace(0x4206, int(sys.argv[1]), None, None), flush=True)
input()
"""
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
ROOT_WITHOUT = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


@contextlib.contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A child that has said its first line; ended by its own pid."""
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None
    try:
        line = child.stdout.readline().strip()
        if line not in ("up", "0"):
            pytest.skip(f"this machine refuses {words[0]}: {line or 'no answer'}")
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


@pytest.fixture
def target() -> Iterator[int]:
    with running(sys.executable, "-c", TARGET) as child:
        yield child.pid


def dump(pid: int, *before: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    assert PY_SPY is not None
    words = [*before, PY_SPY, "dump", "--pid", str(pid), *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def look(pid: int, *before: str) -> Preflight:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*before, sys.executable, "-c", LOOK, str(pid)], env=env, capture_output=True, timeout=60, check=False
    )
    if done.returncode:
        pytest.skip(f"this machine refuses {' '.join(before)}: {done.stderr[-200:].decode()}")
    return msgspec.json.decode(done.stdout, type=Preflight)


def kind(message: str, *, code: int | None = 1, uid: int = 0, caps: int = PTRACE) -> str:
    return classify_attach_error(message, code, uid=uid, caps=caps)[0]


def said(message: str, *, uid: int = 0, caps: int = PTRACE) -> str:
    return classify_attach_error(message, 1, uid=uid, caps=caps)[1]


def env(**facts: object) -> Environment:
    base = Environment(pid=7, uid=0, target_uid=0, memory=1, py_spy="/opt/py-spy", py_spy_version="0.4.3")
    return msgspec.structs.replace(base, **facts)


def all_denials() -> list[str]:
    """Every text that a refused attach can lead to, over all environments."""
    texts: list[str] = []
    for uid, capable, scope, box, sudo in product((0, 1000), (False, True), (None, 1, 3), BOXES, (False, True)):
        told = find_gate(env(uid=uid, capable=capable, ptrace_scope=scope, container=box, has_sudo=sudo))
        texts.append(f"{uid}| {told.reason} {told.fix} {told.next_time}")
    for uid, caps in product((0, 1000), (NO_CAPS, PTRACE)):
        texts.append(f"{uid}| {said('Permission denied (os error 13)', uid=uid, caps=caps)}")
    return texts


BOXES = ("", "docker", "podman", "containerd", "kubernetes")
TRY_SUDO = "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'"


# A. Permission and capability


@needs_root
@needs_py_spy
def test_A1_root_in_a_container_without_the_capability_is_not_told_to_use_sudo(target: int) -> None:
    told = look(target, *ROOT_WITHOUT)
    assert (told.gate, told.can_attach, told.uid, told.has_ptrace_capability) == ("capability", False, 0, False)
    failed = dump(target, *ROOT_WITHOUT)
    assert failed.returncode != 0
    assert kind(failed.stderr, caps=NO_CAPS) == "permission"
    assert kind(TRY_SUDO, caps=NO_CAPS) == "permission"
    assert "CAP_SYS_PTRACE" in said(TRY_SUDO, caps=NO_CAPS)
    assert not [text for text in all_denials() if text.startswith("0|") and "sudo" in text]


def test_A2_pod_without_the_capability_gets_a_way_that_keeps_the_hang_first() -> None:
    told = find_gate(env(container="kubernetes", container_name="vllm-0"))
    assert told.fix.startswith("kubectl debug -it vllm-0 ") and "--profile=general" in told.fix
    assert "capabilities: {add: [SYS_PTRACE]}" in told.next_time
    assert "loses this hang" in told.warning


def test_A3_docker_is_recognised_and_the_capability_is_named() -> None:
    message = (
        "Permission Denied\nIt looks like you are running in a docker container. Please make sure you started your"
    )
    assert kind(message + " container with the SYS_PTRACE capability", caps=NO_CAPS) == "permission"
    assert container_of("0::/", "", {"docker": True}) == "docker"
    assert "--cap-add=SYS_PTRACE" in find_gate(env(container="docker")).fix


@needs_root
def test_A4_a_refused_attach_still_leaves_the_facts_that_need_no_ptrace(target: int) -> None:
    code = f"""
from enginectl.observe.fds import state_of
from enginectl.observe.host import read_host
from enginectl.observe.preflight import preflight
print(preflight({target}, py_spy="/opt/py-spy").can_attach, state_of({target}), bool(read_host({target})[0].cpu_count))
"""
    words = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*NOBODY, sys.executable, "-c", code], env=words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"another user cannot start this Python: {done.stderr[-200:]}")
    assert done.stdout.split() == ["False", "S", "True"]


def test_A5_a_version_that_was_not_readable_is_a_permission_problem() -> None:
    message = "Error: Failed to copy Py_Version symbol\n\nCaused by:\n    Permission denied (os error 13)"
    assert kind(message, caps=NO_CAPS) == "permission"
    assert "ersion" not in said(message, caps=NO_CAPS)


@needs_root
def test_A6_the_capability_of_our_own_process_counts_not_that_of_the_container(target: int) -> None:
    assert look(target, *ROOT_WITHOUT).has_ptrace_capability is False
    assert look(target).has_ptrace_capability is preflight(target, py_spy=None).has_ptrace_capability


def test_A7_the_targets_namespace_is_never_entered() -> None:
    assert kind("Error: EPERM: Operation not permitted\n in Namespace::new") == "permission"
    place = Path(str(enginectl.observe.__file__)).parent
    assert not [path.name for path in place.glob("*.py") if re.search(r"\bsetns\(|os\.setns", path.read_text())]


def test_A8_a_wrapper_that_speaks_of_root_does_not_make_it_a_permission_problem() -> None:
    message = (
        "Failed to execute `sudo -n $(which py-spy) dump -p 830`.\nNote that this command requires `py-spy` to be"
        " installed with root permissions. stderr:\nError: failed to get os threadid"
    )
    assert kind(message) == "threads-ids"
    assert not re.search(r"root|permission|sudo|capabilit", said(message), re.IGNORECASE)


def test_A9_a_missing_sudo_is_a_missing_tool_and_is_not_proposed() -> None:
    assert kind("FileNotFoundError: [Errno 2] No such file or directory: 'sudo'") == "no-tool"
    assert kind("sudo: FileNotFound") == "no-tool"
    assert "sudo" not in find_gate(env(uid=1000, target_uid=0, has_sudo=False)).fix
    assert "sudo" not in find_gate(env(uid=1000, target_uid=0, has_sudo=True, no_new_privileges=True)).fix


def test_A10_setuid_is_never_advised() -> None:
    assert not [text for text in all_denials() if re.search(r"u\+s|setuid|chown", text)]


def test_A11_non_blocking_is_never_proposed_as_a_way_round() -> None:
    assert kind("Error: Permission denied (os error 13)", caps=NO_CAPS) == "permission"
    assert not [text for text in all_denials() if re.search(r"non-?blocking", text)]


def test_A12_ptrace_scope_is_read_first_and_3_means_nobody() -> None:
    assert ptrace_scope() in (None, 0, 1, 2, 3)
    assert kind("ptrace: Operation not permitted.", uid=1000, caps=0) == "permission"
    one = find_gate(env(uid=1000, target_uid=1000, ptrace_scope=1))
    assert (one.name, one.fix) == ("yama", "sysctl -w kernel.yama.ptrace_scope=0   # as root")
    three = find_gate(env(ptrace_scope=3, capable=True))
    assert three.name == "yama" and "not even root" in three.reason and not three.fix


def test_A13_a_missing_section_is_a_permission_problem_unless_the_memory_can_be_read() -> None:
    message = "RuntimeError: Failed to find the PyRuntime section in process 4711 on Linux platform."
    for caps, readable, expected in [(0, None, "permission"), (PTRACE, False, "permission"), (0, True, "not-python")]:
        told = classify_attach_error(message, 1, uid=1000, caps=caps, memory_readable=readable)
        assert told[0] == expected


@needs_root
@needs_py_spy
def test_A14_another_user_is_named_with_both_uids(target: int) -> None:
    told = look(target, *NOBODY)
    assert (told.gate, told.uid, told.target_uid) == ("other-user", 65534, 0)
    assert "uid 0" in told.reason and "uid 65534" in told.reason
    failed = dump(target, *NOBODY)
    assert failed.returncode != 0
    assert kind(failed.stderr, uid=65534, caps=0) == "permission"


# B. Interpreter not recognised


def test_B1_python_newer_than_the_tool_is_known_before_and_after() -> None:
    told = find_gate(env(memory=0, python_version="3.14", newest_python=(3, 13), py_spy_version="0.4.1"))
    assert told.name == "tool-version" and "3.14" in told.reason and told.fix == "pip install --upgrade py-spy"
    assert (
        kind("Error: Failed to find python version from target process\nUnsupported version of Python: 3.14.0")
        == "version"
    )


def test_B2_an_unsupported_version_is_a_version_problem() -> None:
    assert kind("Error: Unsupported version of Python: 3.12.0", caps=NO_CAPS) == "version"
    assert "3.12.0" in said("Error: Unsupported version of Python: 3.12.0")


def test_B4_path_and_version_of_the_tool_are_printed() -> None:
    told = find_gate(env(memory=0, python_version="3.12", newest_python=(3, 11), py_spy="/usr/bin/py-spy"))
    assert "/usr/bin/py-spy" in told.reason and "0.4.3" in told.reason


@needs_py_spy
def test_B5_a_shell_is_not_python() -> None:
    with running("sh", "-c", "echo up; read line") as child:
        failed = dump(child.pid)
    if kind(failed.stderr) == "permission":
        pytest.skip("this machine forbids attaching to a child")
    assert kind(failed.stderr) == "not-python"
    assert "launcher" in said(failed.stderr)


def test_B6_a_frozen_program_is_named_as_a_possibility() -> None:
    message = "Error: Failed to find python version from target process"
    assert kind(message) == "not-python"
    assert "frozen" in said(message)


def test_B7_libpython_without_interpreter_points_into_the_container() -> None:
    message = "Error: Failed to find a python interpreter in the .data section"
    assert kind(message) == "not-python"
    assert "inside its container" in said(message)


def test_B8_a_wrong_address_is_no_permission_and_no_version_problem() -> None:
    assert kind("Engine error: Invalid address in remote process", caps=NO_CAPS) == "other"
    assert "another stack reader" in said("Engine error: Invalid address in remote process")


def test_B9_no_version_string_in_the_program() -> None:
    assert kind("Error: Failed to find python version from target process", caps=NO_CAPS) == "not-python"


@needs_py_spy
def test_B10_a_call_that_holds_the_interpreter_lock_is_read_from_outside() -> None:
    code = "import ctypes\ndef held():\n    print('up', flush=True)\n    ctypes.PyDLL(None).sleep(60)\nheld()"
    with running(sys.executable, "-c", code) as child:
        done = dump(child.pid)
    if done.returncode and kind(done.stderr) == "permission":
        pytest.skip("this machine forbids attaching to a child")
    assert "held" in done.stdout


# C. Namespaces and containers


@needs_root
@needs_py_spy
def test_C1_a_target_in_another_mount_namespace() -> None:
    assert kind("Error: No such file or directory (os error 2)") == "other"
    assert "mount namespace" in said("Error: No such file or directory (os error 2)")
    with running("unshare", "--mount", sys.executable, "-c", TARGET) as child:
        assert preflight(child.pid, py_spy=PY_SPY).can_attach
        assert "waiting_here" in dump(child.pid).stdout


def test_C2_a_tool_that_enters_namespaces_is_named_as_the_cause() -> None:
    message = "Error: Failed to set namespace: EINVAL: Invalid argument"
    assert kind(message) == "other"
    assert "namespace" in said(message)


@needs_root
@needs_py_spy
def test_C3_a_target_in_another_pid_namespace_is_read_and_said_to_be_there() -> None:
    assert kind("Error: failed to get os threadid") == "threads-ids"
    assert kind("failed to get python threadid for main thread!") == "threads-ids"
    with running("unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", TARGET) as outer:
        inner = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0])
        told = preflight(inner, py_spy=PY_SPY)
        assert (told.can_attach, told.same_pid_namespace) == (True, False)
        assert "waiting_here" in dump(inner).stdout
        os.kill(inner, signal.SIGKILL)


def test_C4_thread_ids_with_native_frames_lead_to_python_frames() -> None:
    assert "Python frames alone can be read" in said("Error: failed to get os threadid")


def test_C6_gvisor_is_recognised_and_an_in_process_dump_is_offered() -> None:
    assert kind("Unsupported syscall process_vm_readv", caps=NO_CAPS) == "enosys"
    assert sandbox_of("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016") == "gvisor"
    told = find_gate(env(memory=0, syscalls="no-syscall", sandbox="gvisor"))
    assert told.name == "no-syscall" and "gVisor" in told.reason and "faulthandler" in told.next_time


def test_C7_a_missing_system_call_has_its_own_message() -> None:
    assert kind("Error: Function not implemented (os error 38)", caps=NO_CAPS) == "enosys"
    assert "system calls" in said("Error: Function not implemented (os error 38)")


def test_C8_pystack_on_an_old_kernel() -> None:
    assert kind("Engine error: Function not implemented", caps=NO_CAPS) == "enosys"


def test_C9_qemu_user_emulation_is_recognised() -> None:
    assert sandbox_of("", "/usr/bin/qemu-x86_64-static") == "qemu-user"
    assert sandbox_of("", "", "/usr/libexec/qemu-binfmt/qemu-aarch64") == "qemu-user"
    assert "QEMU" in find_gate(env(memory=0, sandbox="qemu-user")).reason
    assert "QEMU" in said("Error: Failed to find python version from target process")


def test_C10_the_right_is_measured_through_the_memory_file_too(target: int) -> None:
    told = preflight(target, py_spy="/opt/py-spy")
    try:
        os.close(os.open(f"/proc/{target}/mem", os.O_RDONLY))
        assert told.memory_readable is True
    except PermissionError:
        assert told.memory_readable is False


# D. The attach itself hurts the target


@needs_py_spy
def test_D2_after_a_dump_the_target_runs_and_is_not_traced(target: int) -> None:
    dump(target)
    assert state_of(target) in ("S", "R")
    assert preflight(target, py_spy=PY_SPY).tracer_pid == 0


@pytest.mark.parametrize("code", [None, -9, -15, 124, 137])
def test_D4_a_tool_that_was_ended_by_its_time_limit_is_a_timeout(code: int | None) -> None:
    assert kind("", code=code) == "timeout"


def test_D5_a_hang_with_children_is_a_timeout_whatever_was_printed() -> None:
    assert kind("Process 12: python serve.py", code=None) == "timeout"


def test_D7_a_kill_that_came_after_a_message_keeps_the_message() -> None:
    assert kind("Error: Permission denied (os error 13)", code=-9, caps=NO_CAPS) == "permission"


def test_C5_threads_by_pthread_id_are_joined_with_the_kernels_numbers() -> None:
    spied = """Process 700: VLLM::Worker
Python v3.10.12 (/usr/bin/python3.10)

Thread 0x7ED3637AE700 (active): "worker"
    forward (vllm/model_executor/models/qwen3.py:310)
"""
    traced = """Attaching to process 700
Thread 2 (Thread 0x7ed3637ae700 (LWP 731) "python3"):
#0  0x00007f2e in poll () from /lib/x86_64-linux-gnu/libc.so.6
Thread 1 (Thread 0x7ed3637af740 (LWP 700) "python3"):
#0  0x00007f2e in futex_wait () from /lib/x86_64-linux-gnu/libc.so.6
"""
    files = [("py-spy", io.BytesIO(spied.encode())), ("gdb", io.BytesIO(traced.encode()))]
    for order in (files, files[::-1]):
        for _, file in order:
            file.seek(0)
        seen = read(order)
        assert {p.pid for p in seen.processes} == {700}
        (snapshot,) = seen.snapshots  # two tools, one instant: nothing has moved between them
        (process,) = snapshot.processes
        rows = {t.tid: [f.function for f in t.frames or ()] for t in process.threads}
        assert rows == {700: ["futex_wait"], 731: ["poll", "forward"]}
        assert {t.tid: t.name for t in process.threads}[731] == "worker"


def test_D8_cannot_stop_is_not_cannot_read() -> None:
    message = "Error: Failed to suspend process\nReason: EPERM: Operation not permitted"
    assert kind(message) == "traced"
    assert "can be read but not stopped" in said(message)


def test_D9_a_tool_that_is_not_installed() -> None:
    assert kind("/bin/dash: 1: py-spy: not found", code=127) == "no-tool"
    assert kind("/bin/dash: 1: py-spy: not found") == "no-tool"
    assert find_gate(env(memory=0, py_spy=None)).fix == "pip install py-spy"


def test_D10_the_same_from_another_shell_and_the_engine_ends_itself_meanwhile() -> None:
    assert kind("/bin/sh: py-spy: command not found\nReceived sigquit from a child process") == "no-tool"
    text = """Process 400: python3 -m sglang.launch_server --model-path m --watchdog-timeout 600

Thread 400 (idle): "MainThread"
    run (uvloop/__init__.py:82)
    launch_server (sglang/srt/entrypoints/http_server.py:1290)

Process 435: sglang::scheduler_TP0

Thread 435 (idle): "MainThread"
    synchronize (torch/cuda/streams.py:231)
    forward_batch_generation (sglang/srt/managers/tp_worker.py:479)
    run_batch (sglang/srt/managers/scheduler.py:2250)
    event_loop_normal (sglang/srt/managers/scheduler.py:1120)
    run_scheduler_process (sglang/srt/managers/scheduler.py:3210)
"""
    facts = StatedFacts(
        requests=StatedRequests(running=1),
        progress=StatedProgress(tokens_frozen_seconds=200, stuck_seconds=200),
        gpus=(GpuSample(index=0, utilization_percent=100, power_watts=80, power_limit_watts=700),),
    )
    seen = diagnose(read([("dump", io.BytesIO(text.encode()))], facts=facts), load())
    assert seen.verdict.state == "hung", seen.verdict
    (keep,) = [a for f in seen.findings[:1] for a in f.advice if a.id == "record-then-restart"]
    assert "after 600 s without progress" in keep.text
    assert "At most 400 s of them are left" in keep.text


# E. Dump taken but wrong or poor


def test_E1_native_frames_that_do_not_merge() -> None:
    message = "Error: Failed to merge native and python frames (Have 3 native and 8 python)"
    assert kind(message) == "native-merge"
    assert "Python frames alone can be read" in said(message)


def test_E2_native_frames_that_cannot_be_read_do_not_cost_the_python_frames() -> None:
    for message in ("UNW_EUNSPEC: unspecified (general) error", "Failed to merge native and python frames"):
        assert kind(message, caps=NO_CAPS) == "native-merge"


def test_E3_an_unwinder_that_fails_on_this_architecture() -> None:
    assert kind("Error: UNW_EBADREG: bad register number") == "native-merge"


def test_E4_a_stack_without_its_callers_is_torn() -> None:
    whole = (
        Frame(function="<module>", file="serve.py"),
        Frame(function="_run_module_as_main", file="<frozen runpy>"),
        Frame(function="Thread._bootstrap", file="threading.py"),
    )
    inner = Frame(function="step", file="core.py")
    rows = tuple(ThreadSample(tid=n, frames=(inner, root)) for n, root in enumerate(whole))
    assert stacks.torn(rows) == 0
    assert stacks.torn((*rows, ThreadSample(tid=7, frames=(inner,)), ThreadSample(tid=8))) == 1


def test_E7_an_engine_below_python_needs_native_frames() -> None:
    text = """Process 435: python3 -m lmdeploy serve api_server model

Thread 435 (idle): "MainThread"
    run (uvloop/__init__.py:82)
    <module> (lmdeploy/__main__.py:5)
Thread 501 (idle): "Thread-1 (_worker)"
    wait (threading.py:320)
    result (concurrent/futures/_base.py:453)
    async_stream_infer (lmdeploy/turbomind/turbomind.py:702)
    _bootstrap (threading.py:973)
"""
    seen = diagnose(read([("dump", io.BytesIO(text.encode()))]), load())
    assert seen.verdict.outcome == "undecided"
    assert seen.verdict.needs[0] == "native"
    assert {p.engine for p in seen.processes} == {""}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the reader is no parent of what it reads")
def test_E8_the_whole_tree_is_dumped_whichever_member_is_named() -> None:
    pytest.importorskip("setproctitle")
    worker = "import setproctitle; setproctitle.setproctitle('VLLM::Worker_TP0'); print('up', flush=True); input()"
    core = f"""
import setproctitle, subprocess, sys
setproctitle.setproctitle("VLLM::EngineCore")
child = subprocess.Popen([sys.executable, "-c", {worker!r}], stdin=sys.stdin, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""
    with subprocess.Popen([sys.executable, "-c", core], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        for named in (parent.pid, child):
            seen = observe(named, duration_seconds=0, samples=1)
            stacked = {p.pid for p in seen.snapshots[0].processes if any(t.frames for t in p.threads)}
            assert {parent.pid, child} <= stacked
        os.kill(child, signal.SIGKILL)


def test_E5_usage_text_in_place_of_a_dump() -> None:
    message = "error: Found argument '--pid' which wasn't expected, or isn't valid in this context\n\nUSAGE: py-spy"
    assert kind(message, code=2) == "other"
    assert "usage" in said(message)


@needs_py_spy
def test_E6_brackets_in_titles_and_names() -> None:
    code = "import ctypes; ctypes.CDLL(None).prctl(15, b') T (ray::f()', 0, 0, 0)\n" + TARGET
    with running(sys.executable, "-c", code) as child:
        assert state_of(child.pid) in ("S", "R")
        told = preflight(child.pid, py_spy=PY_SPY)
        assert told.state == "S"
        if told.can_attach:
            assert "waiting_here" in dump(child.pid).stdout


@needs_py_spy
def test_E9_a_stopped_target_is_known_before_and_said_after(target: int) -> None:
    os.kill(target, signal.SIGSTOP)
    os.waitid(os.P_PID, target, os.WSTOPPED | os.WNOWAIT)
    try:
        told = preflight(target, py_spy=PY_SPY)
        if told.memory_readable is False:
            pytest.skip(f"this machine forbids attaching to a child: {told.reason}")
        assert (told.gate, told.can_attach, told.fix) == ("stopped", True, f"kill -CONT {target}")
        failed = dump(target)
        assert failed.returncode != 0
        assert kind(failed.stderr) == "stopped"
        assert state_of(target) == "T"
    finally:
        os.kill(target, signal.SIGCONT)


@needs_root
@needs_py_spy
def test_E9_a_traced_target_names_its_tracer(target: int) -> None:
    with running(sys.executable, "-c", TRACER, str(target)) as tracer:
        told = preflight(target, py_spy=PY_SPY)
        assert (told.gate, told.can_attach, told.tracer_pid) == ("traced", True, tracer.pid)
        assert f"pid {tracer.pid} (" in told.reason
        failed = dump(target)
        assert failed.returncode != 0
        assert kind(failed.stderr) == "traced"
    message = f"warning: process 9 is already traced by process {tracer.pid}\nptrace: Operation not permitted."
    assert classify_attach_error(message, 1, uid=0, caps=PTRACE) == (
        "traced",
        f"it is already traced by pid {tracer.pid}",
    )


def test_E10_the_recipe_for_next_time_is_offered_where_nothing_else_works() -> None:
    told = find_gate(env(memory=0, syscalls="no-syscall"))
    assert "faulthandler.register(signal.SIGUSR1" in told.next_time
    assert "enginectl doctor --from" in told.next_time


# Across all rows


def test_a_gone_process_is_gone() -> None:
    message = (
        "Error: Failed to get process executable name. Check that the process is running.\n\nCaused by:\n    0: No such"
    )
    assert kind(message + " file or directory (os error 2)", caps=NO_CAPS) == "gone"
    assert kind("ptrace: No such process.", caps=NO_CAPS) == "gone"


def test_no_hint_of_the_wrong_kind() -> None:
    """Neither permission words in another error, nor version words in a permission problem."""
    others = ["failed to get os threadid", "Unsupported version of Python: 3.14.0", "UNW_EBADREG", "no idea", ""]
    for message, uid, caps in product(others, (0, 1000), (0, NO_CAPS, PTRACE)):
        assert not re.search(r"sudo|root|permission|CAP_", said(message, uid=uid, caps=caps), re.IGNORECASE)
    for uid, caps in product((0, 1000), (0, NO_CAPS, PTRACE)):
        assert not re.search(r"version|newer", said("Permission denied (os error 13)", uid=uid, caps=caps))


def test_a_backtrace_below_the_message_does_not_count() -> None:
    assert kind("Error: odd\n\nStack backtrace:\n   0: Permission denied::handler\n   1: EPERM") == "other"


# --- the helper itself --------------------------------------------------------------------------------------------


@pytest.fixture
def fake_py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a shell script in the place of py-spy."""

    def make(script: str) -> None:
        path = tmp_path / "py-spy"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(stacks, "find_py_spy", lambda: str(path))

    return make


def test_B3_a_thread_without_a_name_is_read(fake_py_spy: Callable[[str], None]) -> None:
    frame = '{"name": "f", "filename": "a.py", "module": null, "line": 0}'
    fake_py_spy(f"""echo '[{{"pid": 1, "thread_id": 7, "thread_name": null, "frames": [{frame}]}}]'""")
    (one,) = stacks.dump([os.getpid()])
    assert one.threads is not None and one.gap is None
    assert [(t.tid, t.name, t.frames[0].line if t.frames else 0) for t in one.threads] == [(7, None, None)]


@needs_py_spy
def test_D1_one_dump_is_one_stop_and_its_length_is_told(target: int) -> None:
    (one,) = stacks.dump([target])
    assert one.gap is None and 0 < one.pause_seconds <= one.wall_seconds + stacks.POLL_SECONDS * 50
    assert state_of(target) not in ("T", "t")


def test_D3_the_helper_is_no_part_of_the_terminals_foreground_group(
    fake_py_spy: Callable[[str], None], tmp_path: Path
) -> None:
    fake_py_spy(f"ps -o pgid= -p $$ > {tmp_path / 'group'}; echo '[]'")
    stacks.dump([os.getpid()])
    assert int((tmp_path / "group").read_text()) != os.getpgrp()


def test_D6_a_helper_that_loops_is_ended_with_all_that_it_started(
    fake_py_spy: Callable[[str], None], tmp_path: Path
) -> None:
    fake_py_spy(f"sleep 600 & echo $! > {tmp_path / 'child'}; trap '' INT TERM; while :; do sleep 1; done")
    (one,) = stacks.dump([os.getpid()], timeout_seconds=4.0)
    assert one.error == "timeout" and one.threads is None and one.gap is not None
    assert one.wall_seconds < 40
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while state_of(child) not in (None, "Z", "X"):
        assert time.monotonic() < deadline, "a process of the helper's group is left"
        time.sleep(0.01)


ROWS = [
    f"{group}{n}" for group, count in {"A": 14, "B": 10, "C": 10, "D": 10, "E": 10}.items() for n in range(1, count + 1)
]


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_its_test(row: str) -> None:
    tests = [value for name, value in globals().items() if name.startswith(f"test_{row}_") and callable(value)]
    assert tests, f"{row} has no test"
