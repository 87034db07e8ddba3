"""Parts from which the tests build whole diagnoses."""

from __future__ import annotations

from enginectl.model.diagnosed import (
    ChainLink,
    Cost,
    Diagnosis,
    Evidence,
    Finding,
    ProcessRow,
    ThreadRow,
    Tier,
    Verdict,
)
from enginectl.model.observed import Gap

TIERS = (
    Tier(name="T0", reached=True, adds="whether tokens and requests move"),
    Tier(name="T1", reached=True, adds="CPU use, run queue, process states and GPUs"),
    Tier(name="T2", reached=True, adds="Python stacks: where each thread stands"),
    Tier(
        name="T3",
        reached=False,
        adds="native frames: lock, device or socket",
        unlock="$ enginectl doctor --pid 4321 --native",
    ),
)
NO_GPU = Gap(source="gpu", reason="no NVIDIA driver on this host", remedy="none needed on a CPU-only host")
COST = Cost(wall_seconds=2.31, pause_seconds_max=0.011, samples=5)
H200 = "NVIDIA H200"


def thread(tid: int, name: str, role: str, point: str, group: str, meaning: str = "", **more: object) -> ThreadRow:
    fields = {"activity": "running" if group == "cpu" else "waiting", "os_state": "S", "cpu_ratio": 0.0} | more
    fields = {"gil_ratio": 0.0, "runqueue_ratio": 0.0} | fields
    return ThreadRow(tid=tid, name=name, role=role, wait_point=point, wait_class=group, meaning=meaning, **fields)


def process(pid: int, role: str, title: str, *threads: ThreadRow, **more: object) -> ProcessRow:
    fields = {"rank": None, "engine": "vllm", "engine_version": "0.27.1", "python_version": "3.12.9"}
    return ProcessRow(pid=pid, role=role, title=title, threads=threads, **(fields | {"os_state": "S"} | more))


def link(pid: int, tid: int | None, role: str, owner: str, waits_for: str = "", **more: str) -> ChainLink:
    fields = {"through": "", "wait_point": "", "wait_class": "peer", "meaning": ""} | more
    return ChainLink(pid=pid, tid=tid, thread_role=role, process_role=owner, waits_for=waits_for, **fields)


def diagnosis(verdict: Verdict, *findings: Finding, **more: object) -> Diagnosis:
    fields = {"chain": (), "processes": (), "gpus": (), "engine_counters": {}, "tiers": TIERS, "gaps": (), "cost": COST}
    return Diagnosis(schema_version=1, verdict=verdict, findings=findings, **(fields | more))


def told(state: str, name: str, code: str, summary: str, **more: object) -> Verdict:
    fields = {"outcome": "decided", "confidence": "high"} | more
    return Verdict(state=state, finding=name, code=code, summary=summary, **fields)


def found(verdict: Verdict, severity: str, *evidence: Evidence, **more: object) -> Finding:
    return Finding(
        code=verdict.code,
        finding=verdict.finding,
        state=verdict.state,
        severity=severity,
        confidence=verdict.confidence,
        summary=verdict.summary,
        evidence=evidence,
        **more,
    )


def measured(fact: str, value: object, unit: str, op: str, limit: object, meaning: str, of: str = "") -> Evidence:
    return Evidence(fact=fact, of=of, value=value, unit=unit, op=op, threshold=limit, meaning=meaning)


def frontend_row(point: str = "vllm.frontend.uvloop", **more: object) -> ProcessRow:
    loop = thread(
        4310,
        "MainThread",
        "frontend-loop",
        point,
        "idle",
        "The event loop waits for a socket",
        cpu_ratio=0.02,
        frames=("run (uvloop/__init__.py:96)", "run_server (vllm/entrypoints/openai/api_server.py:1904)"),
    )
    return process(4310, "frontend", "vllm serve Qwen/Qwen3-0.6B --port 8000", loop, **more)


IDLE_FRAMES = (
    "wait (threading.py:355)",
    "get (queue.py:180)",
    "_process_input_queue (vllm/v1/engine/core.py:1197)",
    "run_busy_loop (vllm/v1/engine/core.py:1171)",
    "run_engine_core (vllm/v1/engine/core.py:1101)",
)
FORWARD_FRAMES = (
    "forward (torch/nn/modules/linear.py:134)",
    "forward (vllm/model_executor/models/qwen3.py:131)",
    "execute_model (vllm/v1/worker/gpu_model_runner.py:3402)",
    "execute_model (vllm/v1/worker/gpu_worker.py:612)",
    "collective_rpc (vllm/v1/executor/uniproc_executor.py:74)",
    "execute_model (vllm/v1/executor/abstract.py:214)",
    "step (vllm/v1/engine/core.py:402)",
    "_process_engine_step (vllm/v1/engine/core.py:1221)",
    "run_busy_loop (vllm/v1/engine/core.py:1173)",
    "run_engine_core (vllm/v1/engine/core.py:1101)",
)


def core_row(loop: ThreadRow, *others: ThreadRow, **more: object) -> ProcessRow:
    helpers = (
        thread(4330, "Thread-1 (_report_usage)", "helper", "vllm.usage.sleep", "timer"),
        thread(4331, "tqdm_monitor", "monitor", "python.tqdm.wait", "timer"),
        thread(4332, "ZMQbg/IO/0", "helper", "unknown", "unknown", activity="unknown"),
    )
    ipc = (
        thread(4325, "Thread-3 (process_input_sockets)", "ipc-in", "vllm.core.zmq-poll", "idle", "Waits for a message"),
        thread(
            4326, "Thread-4 (process_output_sockets)", "ipc-out", "vllm.core.output-queue", "idle", "Nothing to send"
        ),
    )
    return process(4321, "engine-core", "VLLM::EngineCore", loop, *(others or ipc), *helpers, **more)
