"""From what preflight measured to the one gate that is shut and the one line that opens it here. Pure."""

from __future__ import annotations

import msgspec

YAMA_LOCKED = 3


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides whether an attach can work.

    `memory` is 0 when the target's memory can be opened, else an errno or None. `bounded` says that our bounding
    set lacks CAP_SYS_PTRACE, so that not even a new program of ours can have it.
    """

    pid: int
    uid: int
    target_uid: int
    state: str = "S"
    capable: bool = False
    bounded: bool = False
    more_capable_target: bool = False
    memory: int | None = 0
    syscalls: str = ""
    ptrace_scope: int | None = None
    dumpable: bool | None = None
    same_user_namespace: bool | None = None
    tracer_pid: int = 0
    tracer_name: str = ""
    no_new_privileges: bool = False
    sandbox: str = ""
    container: str = ""
    container_name: str = ""
    python_version: str | None = None
    newest_python: tuple[int, int] | None = None
    py_spy: str | None = None
    py_spy_version: str = ""
    privileged_tool: bool = False
    has_sudo: bool = False


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """The gate, in one word, with its opener."""

    name: str
    can_attach: bool = False
    reason: str = ""
    fix: str = ""
    next_time: str = ""
    warning: str = ""


def find_gate(env: Environment) -> Gate:
    """The first gate that is shut on the way to the target's stacks; `open` when none is."""
    if env.state == "Z":
        return Gate(name="zombie", reason=f"process {env.pid} has ended and waits for its parent to collect it")
    if env.sandbox == "qemu-user":
        return _emulated(env)
    if env.memory not in (0, None) and not env.privileged_tool:
        return _refused(env)
    if env.syscalls:
        return _forbidden(env)
    if env.py_spy is None:
        return Gate(name="no-tool", reason="py-spy is not installed here", fix="pip install py-spy")
    if (version := _version_gate(env)) is not None:
        return version
    return _held(env) or Gate(name="open", can_attach=True)


def _refused(env: Environment) -> Gate:
    """The kernel says no: which of its checks was it?"""
    if env.ptrace_scope == YAMA_LOCKED:
        reason = "kernel.yama.ptrace_scope is 3: nobody may attach, not even root, until the host is rebooted"
        return Gate(name="yama", reason=reason, fix="", next_time="kernel.yama.ptrace_scope=1 at boot", warning=_HANG)
    if env.same_user_namespace is False:
        reason = f"process {env.pid} lives in another user namespace, where this user has no rights"
        return _opener(env, "user-namespace", reason)
    if env.capable:
        reason = "refused although CAP_SYS_PTRACE is held: a security module (SELinux, AppArmor) forbids it"
        return Gate(name="security-module", reason=reason, fix=f"cat /proc/{env.pid}/attr/current", warning=_HANG)
    if env.uid == 0:
        return _opener(env, "capability", "being root is not enough: CAP_SYS_PTRACE is missing from this process")
    if env.uid != env.target_uid:
        reason = f"process {env.pid} belongs to uid {env.target_uid}, this is uid {env.uid} without CAP_SYS_PTRACE"
        return _opener(env, "other-user", reason)
    if env.ptrace_scope:
        reason = f"kernel.yama.ptrace_scope is {env.ptrace_scope}: a user may not attach to processes of its own"
        return _opener(env, "yama", reason)
    if env.dumpable is False:
        return _opener(env, "not-dumpable", f"process {env.pid} has made itself unreadable (prctl PR_SET_DUMPABLE)")
    if env.more_capable_target:
        reason = f"process {env.pid} holds capabilities that this process lacks, so only CAP_SYS_PTRACE may read it"
        return _opener(env, "capability", reason)
    return _opener(env, "security-module", "refused for a reason that the kernel does not tell")


def _forbidden(env: Environment) -> Gate:
    """The system calls for attaching fail even on ourselves."""
    if env.syscalls == "seccomp":
        reason = "a seccomp filter forbids ptrace and process_vm_readv in this container"
        return _opener(env, "seccomp", reason)
    where = "gVisor" if env.sandbox == "gvisor" else "this kernel or sandbox"
    reason = f"{where} does not offer the calls for reading another process"
    return Gate(name="no-syscall", reason=reason, fix="", next_time=_IN_PROCESS, warning=_HANG)


def _emulated(env: Environment) -> Gate:
    reason = f"process {env.pid} is emulated by QEMU user emulation, where its interpreter cannot be read"
    return Gate(name="no-syscall", reason=reason, next_time="run an image built for this machine's architecture")


def _version_gate(env: Environment) -> Gate | None:
    """Python newer than the tool reads."""
    if env.python_version is None or env.newest_python is None:
        return None
    numbers = tuple(int(each) for each in env.python_version.split(".")[:2] if each.isdigit())
    if len(numbers) < 2 or numbers <= env.newest_python:
        return None
    newest = ".".join(str(each) for each in env.newest_python)
    reason = (
        f"the target runs Python {env.python_version}; py-spy {env.py_spy_version} ({env.py_spy}) reads up to {newest}"
    )
    return Gate(name="tool-version", reason=reason, fix="pip install --upgrade py-spy")


def _held(env: Environment) -> Gate | None:
    """Stopped or traced: it can be read as it stands, but not stopped by us."""
    if env.tracer_pid:
        reason = f"process {env.pid} is traced by pid {env.tracer_pid} ({env.tracer_name})"
        return Gate(name="traced", can_attach=True, reason=reason, fix=f"end the tracer: kill {env.tracer_pid}")
    if env.state == "T":
        reason = f"process {env.pid} is stopped (state T)"
        return Gate(name="stopped", can_attach=True, reason=reason, fix=f"kill -CONT {env.pid}")
    return None


_HANG = "Restarting or redeploying the engine loses this hang."
_IN_PROCESS = (
    "call faulthandler.register(signal.SIGUSR1, all_threads=True) at start; then `kill -USR1 PID` prints the stacks,"
    " and `enginectl doctor --from -` reads them"
)
_MANIFEST = "securityContext: {capabilities: {add: [SYS_PTRACE]}}  # in the container's entry of the pod manifest"


def _opener(env: Environment, name: str, reason: str) -> Gate:
    """The line that opens a permission gate where we are: in a pod, in a container, or on a host."""
    ask = f"enginectl doctor --pid {env.pid}"
    if env.container == "kubernetes":
        place = f"{env.container_name or 'POD'} --image=IMAGE_WITH_ENGINECTL --target=CONTAINER"
        fix = f"kubectl debug -it {place} --profile=general -- {ask}"
        return Gate(name=name, reason=reason, fix=fix, next_time=_MANIFEST, warning=_HANG)
    if env.container:
        runtime = {"podman": "podman", "containerd": "nerdctl"}.get(env.container, "docker")
        place = f"--pid=container:{env.container_name or 'CONTAINER'} --cap-add=SYS_PTRACE IMAGE_WITH_ENGINECTL"
        fix, later = f"{runtime} run --rm -it {place} {ask}", f"{runtime} run --cap-add=SYS_PTRACE ..."
        return Gate(name=name, reason=reason, fix=fix, next_time=later, warning=_HANG)
    if env.uid == 0:
        fix = "run it from a root shell of the host that has CAP_SYS_PTRACE"
        fix += ", not through the service or container that took it away" if env.bounded else ""
    elif name == "yama" and env.ptrace_scope == 1 and not env.has_sudo:
        fix = "sysctl -w kernel.yama.ptrace_scope=0   # as root"
    elif env.has_sudo and not env.no_new_privileges:
        fix = f'sudo env "PATH=$PATH" {ask}'
    else:
        fix = f"as root: {ask}"
    return Gate(name=name, reason=reason, fix=fix, warning="" if name == "other-user" else _HANG)
