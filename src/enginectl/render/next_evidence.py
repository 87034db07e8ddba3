"""What an undecided report asks for: candidates in plain words and the command that brings the next evidence."""

from __future__ import annotations

import msgspec

from enginectl.model.diagnosed import Diagnosis
from enginectl.render import words

_CANDIDATES = {
    "idle": "there is simply no work",
    "idle-busy-spin": "no work; polling burns CPU",
    "compute-bound": "the model forward is the limit, nothing is wrong",
    "busy": "progress without one bottleneck",
    "starting-weights": "it is still loading weights",
    "starting-compile": "it is still compiling or warming up",
    "starting-rendezvous": "it is still joining its peers",
    "frontend-bound": "the front end's event loop is the limit",
    "ipc-serialization-bound": "encoding or decoding messages is the limit",
    "ipc-send-blocked": "messages cannot leave, the peer does not read",
    "control-flood": "aborts crowd out new requests",
    "publisher-backpressure": "a full side queue blocks the loop",
    "message-lost": "two sides each wait for the other's message",
    "scheduler-bound": "scheduling takes the time",
    "host-bound": "other host work in the step takes the time",
    "grammar-bound": "structured-output work takes the time",
    "kv-cache-pressure": "the KV cache has no free blocks",
    "scheduler-livelock": "the loop steps but schedules nothing",
    "request-lost": "a request is outstanding that nobody works on",
    "kv-transfer-stalled": "a KV transfer does not complete",
    "jit-compile": "kernels compile while serving",
    "output-bound": "detokenising or assembling results is the limit",
    "gil-contention": "one thread keeps the interpreter lock",
    "cpu-starved": "threads do not get a core",
    "hot-thread": "a thread outside the engine burns a core",
    "lock-wait": "a lock outside the engine is held",
    "deadlock": "a cycle of waits, nobody can move",
    "pipe-blocked": "a write to a pipe that nobody reads",
    "shm-exhausted": "/dev/shm is full",
    "process-stopped": "a process was stopped or is being traced",
    "device-hang": "device work never completes",
    "collective-hang": "ranks disagree in a collective",
    "rank-lag": "one rank is late",
    "device-fault": "the device reported an error",
    "worker-lost": "the worker is gone or does not answer",
    "worker-wait": "the other side of the engine-worker pair holds it up",
    "thread-died": "a thread that must exist is missing",
    "engine-exited": "the engine function has returned",
    "fatal-error": "the dump is a death notice",
}

_NVIDIA_SMI = "nvidia-smi --format=csv --query-gpu=utilization.gpu,utilization.memory,power.draw"
_LIVE = {
    "stacks": ('the stacks of the threads: "Could not be read" says what opens them', ""),
    "second-sample": ("a longer look, does anything move?", "enginectl doctor --pid {pid} --duration 15"),
    "gpu": (
        "what the GPU does: utilisation, power, memory activity",
        _NVIDIA_SMI,
    ),
    "peer-stacks": ("the stacks of the engine's other processes", "sudo enginectl doctor --pid {pid}"),
    "collectives": ("how many collectives each rank has launched, twice", "ncclras -v"),
    "engine-counters": (
        "the engine's counters, read twice",
        "enginectl doctor --pid {pid} --url http://127.0.0.1:8000/metrics",
    ),
    "native": ("native frames: lock, device or socket?", "enginectl doctor --pid {pid} --native"),
}
_SAVED = {
    "stacks": (
        "a dump of the threads' stacks",
        "py-spy dump --pid {pid} > first.txt\nenginectl doctor --from first.txt",
    ),
    "second-sample": (
        "a second dump of the same process, 10 s later: does anything move?",
        "py-spy dump --pid {pid} > second.txt\nenginectl doctor --from first.txt second.txt",
    ),
    "gpu": (
        "what the GPU does; put utilisation and power into a facts file",
        f"{_NVIDIA_SMI}\nenginectl doctor --from first.txt --facts facts.toml",
    ),
    "peer-stacks": (
        "a dump of each other process of the engine (front end, engine core, workers)",
        "enginectl ps\nenginectl doctor --from first.txt peer.txt",
    ),
    "collectives": (
        "how many collectives each rank has launched; put them into a facts file (collective_sequence)",
        "ncclras -v\nenginectl doctor --from first.txt --facts facts.toml",
    ),
    "engine-counters": (
        "the engine's counters, read twice; put them into a facts file",
        "curl -s -m 5 http://127.0.0.1:8000/metrics | grep -E 'requests_(running|waiting)|tokens_total'\n"
        "enginectl doctor --from first.txt --facts facts.toml",
    ),
    "native": (
        "a dump with native frames: lock, device or socket?",
        "py-spy dump --native --pid {pid} > native.txt\nenginectl doctor --from native.txt",
    ),
}


class NextEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to collect: what it would show, and the command, empty when there is none to give."""

    text: str
    command: str = ""


def candidates(diagnosis: Diagnosis) -> list[str]:
    """What it could be, as "device-hang: device work never completes", at most four."""
    names = [words.clean(name) for name in diagnosis.verdict.candidates[:4]]
    return [f"{name}: {_CANDIDATES[name]}" if name in _CANDIDATES else name for name in names]


def next_evidence(diagnosis: Diagnosis) -> list[NextEvidence]:
    """What would tell the candidates apart, in the order of the verdict's `needs`."""
    table = _SAVED if is_saved(diagnosis) else _LIVE
    pid = main_pid(diagnosis)
    found = []
    for need in _still_open(diagnosis):
        text, command = table.get(need, (words.clean(need), ""))
        text = text[:1].upper() + text[1:]
        found.append(NextEvidence(text=text, command=command.replace("{pid}", str(pid) if pid else "PID")))
    return found


def _still_open(diagnosis: Diagnosis) -> tuple[str, ...]:
    """The verdict's needs, without what a live look at this machine has read already or can never bring."""
    needs = diagnosis.verdict.needs
    if is_saved(diagnosis) or not needs:
        return needs
    without_gpu = any(gap.source == "gpu" and gap.reason.startswith("there is no NVML") for gap in diagnosis.gaps)
    settled = {"engine-counters"} if "running" in diagnosis.engine_counters else set()
    settled |= {"gpu"} if without_gpu or diagnosis.gpus else set()
    return tuple(need for need in needs if need not in settled) or ("second-sample",)


def full_command(unlock: str, diagnosis: Diagnosis) -> str:
    """A bare flag (`--native`) as a whole command for this target; any other text as it is."""
    if not unlock.startswith("--"):
        return unlock
    pid = main_pid(diagnosis) or "PID"
    if is_saved(diagnosis) and unlock == "--native":
        return f"$ py-spy dump --native --pid {pid} > native.txt"
    return f"$ enginectl doctor --pid {pid} {unlock}"


def is_saved(diagnosis: Diagnosis) -> bool:
    """True when the evidence came from saved dumps rather than a live process."""
    return diagnosis.understood is not None


def main_pid(diagnosis: Diagnosis) -> int | None:
    """The pid that follow-up commands should name: the engine core's, else the first one, None without any."""
    known = [process for process in diagnosis.processes if process.pid > 0]
    cores = [process.pid for process in known if process.role == "engine-core"]
    return cores[0] if cores else known[0].pid if known else None
