"""The table of faults: what really happens, which finding it must provoke, and how it is brought about.

Most rows are an unlucky configuration under a certain load; the others name a function of
`fault_engine` that changes the engine, or an action of the driver. `verified_by` names the condition in
`fault_probe` that must be seen to hold before a fault counts as active.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from engine_core.load import LoadProfile

if TYPE_CHECKING:
    from engine_core.client import EngineClient
    from engine_core.core import EngineCore
    from engine_core.model import ModelRunner

Driver = Literal["", "stop-engine", "burn-cores", "hold-lock", "feed-weights", "small-shm"]
_WIDE = {"vocab_size": 151936, "hidden_size": 16, "num_hidden_layers": 1}
_LARGE_RESULTS = LoadProfile(kind="token_embed", prompt_tokens=512, shared_tokens=128, concurrency=24)


@dataclass(frozen=True, slots=True)
class Fault:
    """One row. `overrides` are engine options, used where the user has not set them otherwise.

    `engine` names a function of `fault_engine`; `driver` an action of the run-demo program;
    `while_starting` means that it is active before the engine is ready.
    """

    name: str
    findings: tuple[str, ...]
    description: str
    load: LoadProfile | None
    verified_by: str
    culprit: str = ""
    model: str = "qwen3-embedding-tiny"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    engine: str = ""
    driver: Driver = ""
    needs: str = ""
    while_starting: bool = False

    def unsupported_reason(self) -> str:
        """Why this machine cannot show the fault; "" when it can."""
        return _mount_refusal() if self.driver == "small-shm" else ""


_ROWS = (
    Fault("idle", ("idle",), "the engine waits for requests", None, "all_idle"),
    Fault(
        "load",
        ("compute-bound",),
        "the model's forward pass dominates",
        LoadProfile(),
        "requests_finish",
        culprit="EngineCoreLoop",
    ),
    Fault(
        "slow-scheduler",
        ("scheduler-bound",),
        "every step matches the prefix of a huge waiting queue again, and --max-num-seqs is absurd",
        LoadProfile(prompt_tokens=272, shared_tokens=256, batch=1024, concurrency=8),
        "marked",
        culprit="EngineCoreLoop",
        engine="watch_schedule_time",
        overrides={
            "scheduling_policy": "longest-prefix",
            "max_num_seqs": 8192,
            "max_num_batched_tokens": 16,
            "hf_overrides": {"num_hidden_layers": 1},
        },
    ),
    Fault(
        "long-detokenize",
        ("gil-contention",),
        "a plain-Python detokenizer decodes each very long output from its beginning for every token",
        LoadProfile(
            kind="generate",
            prompt_tokens=8000,
            shared_tokens=7990,
            num_prefixes=1,
            max_tokens=4000,
            concurrency=16,
            stop=("\n\nQuestion:", "\n\nAnswer:", "</answer>", "<|end|>", "###", "Observation:"),
        ),
        "output_processor_dominates",
        culprit="OutputProcessor",
        model="qwen3-tiny",
        overrides={
            "slow_tokenizer": True,
            "max_model_len": 16384,
            "num_gpu_blocks_override": 4096,
            "hf_overrides": {"num_hidden_layers": 1, "num_key_value_heads": 1, "head_dim": 32},
        },
    ),
    Fault(
        "slow-output",
        ("output-bound",),
        "decoding and log-probabilities over a wide vocabulary take longer than the steps, without the GIL",
        LoadProfile(kind="generate", prompt_tokens=32, max_tokens=400, logprobs=64, temperature=0.0, concurrency=16),
        "output_processor_dominates",
        culprit="OutputProcessor",
        model="qwen3-tiny",
        overrides={"hf_overrides": _WIDE, "output_queue_size": 2, "torch_threads": 1},
    ),
    Fault(
        "client-stops-reading",
        ("ipc-send-blocked",),
        "the front end stops reading, and send_multipart of large results reaches the high-water mark",
        _LARGE_RESULTS,
        "marked_and_ipc_parked",
        culprit="front end",
        engine="report_blocked_send",
        overrides={"ipc_hwm": 1},
    ),
    Fault(
        "large-messages",
        ("ipc-serialization-bound",),
        "prompts of a megabyte keep IPCLoop decoding, checking and hashing them",
        LoadProfile(prompt_tokens=250_000, remembered=3, truncate_prompt_tokens=16, concurrency=6),
        "ipc_loop_dominates",
        culprit="IPCLoop",
    ),
    Fault(
        "abort-flood",
        ("control-flood",),
        "clients drop hundreds of requests a second; their aborts fill input_queue",
        LoadProfile(kind="generate", prompt_tokens=64, shared_tokens=16, batch=16, concurrency=16, drop=True),
        "aborts_flood",
        culprit="front end",
        model="qwen3-tiny",
        overrides={"max_num_seqs": 4, "hf_overrides": {"num_hidden_layers": 1}},
    ),
    Fault(
        "kv-thrash",
        ("kv-cache-pressure",),
        "too few KV blocks: running requests are preempted and recomputed",
        LoadProfile(kind="generate", prompt_tokens=40, max_tokens=300, concurrency=12),
        "preemptions_rise",
        culprit="EngineCoreLoop",
        model="qwen3-tiny",
        overrides={"num_gpu_blocks_override": 24, "hf_overrides": {"num_hidden_layers": 1}},
    ),
    Fault(
        "never-admit",
        ("scheduler-livelock",),
        "a request larger than the whole KV pool heads the queue; the loop steps and schedules nothing",
        LoadProfile(prompt_tokens=128, concurrency=6, giant_tokens=1600),
        "steps_without_work",
        culprit="EngineCoreLoop",
        overrides={"num_gpu_blocks_override": 64},
    ),
    Fault(
        "lost-request",
        ("request-lost",),
        "requests leave input_queue and never reach the waiting queue",
        LoadProfile(),
        "all_parked_with_requests",
        engine="lose_requests",
    ),
    Fault(
        "forward-never-returns",
        ("device-hang",),
        "the forward waits in native code that never ends, without the GIL",
        LoadProfile(kind="generate", prompt_tokens=64, rate=3.0),
        "marked_and_loop_parked",
        culprit="EngineCoreLoop",
        model="qwen3-tiny",
        engine="forward_never_returns",
    ),
    Fault(
        "queue-cycle",
        ("deadlock",),
        "bounded queues are full in a circle, and each thread waits to put into the next",
        LoadProfile(prompt_tokens=64, concurrency=400),
        "all_parked_with_requests",
        culprit="EngineCoreLoop",
        overrides={"queue_size": 1, "max_num_batched_tokens": 256},
    ),
    Fault(
        "lock-order",
        ("deadlock",),
        "two threads take the same two locks in opposite order",
        LoadProfile(),
        "loop_and_output_parked",
        culprit="EngineCoreLoop",
        engine="take_locks_in_both_orders",
    ),
    Fault(
        "loop-dies",
        ("thread-died",),
        "EngineCoreLoop raises and is gone; the process lives on",
        LoadProfile(),
        "loop_gone",
        culprit="EngineCoreLoop",
        engine="loop_dies",
    ),
    Fault(
        "hot-thread",
        ("hot-thread", "gil-contention"),
        "a stray thread spins in Python",
        LoadProfile(concurrency=2),
        "stray_thread_hot",
        culprit="StatsFlusher",
        engine="spin_in_python",
    ),
    Fault(
        "cpu-starved",
        ("cpu-starved",),
        "busy processes take the core the engine may run on",
        LoadProfile(),
        "loop_starved",
        culprit="other processes",
        driver="burn-cores",
    ),
    Fault(
        "log-pipe-full",
        ("pipe-blocked",),
        "stderr is a pipe nobody reads, and the loop logs every step",
        LoadProfile(kind="generate", prompt_tokens=32, concurrency=8),
        "loop_parked_with_requests",
        culprit="front end",
        model="qwen3-tiny",
        overrides={"log_steps": True},
    ),
    Fault(
        "file-lock",
        ("lock-wait",),
        "another process holds the lock of the compile cache",
        LoadProfile(),
        "marked_and_stuck",
        culprit="another process",
        engine="read_compile_cache",
        driver="hold-lock",
    ),
    Fault(
        "shm-full",
        ("shm-exhausted",),
        "large results go through /dev/shm, and its file system is full",
        _LARGE_RESULTS,
        "shm_full_and_stuck",
        culprit="IPCLoop",
        driver="small-shm",
        overrides={"shm_results": True},
        needs="root and a private mount namespace",
    ),
    Fault(
        "stopped",
        ("process-stopped",),
        "SIGSTOP",
        LoadProfile(),
        "process_stopped",
        culprit="engine_core",
        driver="stop-engine",
    ),
    Fault(
        "slow-weights",
        ("starting-weights",),
        "weights arrive slowly from a congested disk",
        None,
        "marked",
        driver="feed-weights",
        while_starting=True,
    ),
    Fault(
        "warm-up",
        ("starting-compile",),
        "the engine warms up for every batch size up to 3000 tokens",
        None,
        "marked",
        engine="watch_warm_up",
        while_starting=True,
        overrides={"warm_up_max_tokens": 3000, "max_num_batched_tokens": 3000, "max_model_len": 3000},
    ),
    Fault(
        "crash",
        ("engine-exited",),
        "the engine function returns; a thread that is no daemon keeps the process",
        LoadProfile(),
        "loop_gone",
        culprit="MainThread",
        engine="engine_function_returns",
    ),
)
FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ROWS}


def install_in_runner(runner: ModelRunner) -> None:
    """Change the model runner between weights and warm-up; called in the engine_core process."""
    if "warm-up" in runner.config.faults:
        from engine_core.fault_engine import watch_warm_up

        watch_warm_up(runner)


def install_in_engine(engine: EngineCore) -> None:
    """Change the engine as the configured faults say; called in the engine_core process."""
    from engine_core import fault_engine

    for name in engine.config.faults:
        if FAULTS[name].engine and not FAULTS[name].while_starting:
            getattr(fault_engine, FAULTS[name].engine)(engine)


def install_in_front_end(client: EngineClient) -> None:
    """client-stops-reading: the receiver waits for a consumer that never comes."""
    if "client-stops-reading" not in client.config.faults:
        return
    consumer_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    received = iter(range(2 * (_LARGE_RESULTS.concurrency)))
    client.before_receive = lambda: None if next(received, None) is not None else consumer_ready


def _mount_refusal() -> str:
    if os.geteuid() != 0:
        return "needs root to mount a small /dev/shm"
    command = ["unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unshare cannot be run: {error}"
    return "" if result.returncode == 0 else f"a private mount is refused: {result.stderr.strip()}"


def fault_rows() -> list[dict[str, Any]]:
    """The table as plain data, with what is possible on this machine."""
    rows = []
    for fault in FAULTS.values():
        reason = fault.unsupported_reason()
        rows.append(
            {
                "name": fault.name,
                "findings": list(fault.findings),
                "culprit": fault.culprit,
                "description": fault.description,
                "needs": fault.needs,
                "while_starting": fault.while_starting,
                "supported": not reason,
                "reason": reason,
            }
        )
    return rows
