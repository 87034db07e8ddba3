"""Hand-built diagnoses of engines that move or rest, and of evidence that is not enough."""

from __future__ import annotations

from tests.render.builders import (
    FORWARD_FRAMES,
    H200,
    IDLE_FRAMES,
    NO_GPU,
    TIERS,
    core_row,
    diagnosis,
    found,
    frontend_row,
    link,
    measured,
    process,
    thread,
    told,
)

from enginectl.model.diagnosed import AdviceLine, Cost, Culprit, Diagnosis, Evidence, Finding, ThreadRow, Tier
from enginectl.model.observed import Gap, GpuSample, Understood


def idle() -> Diagnosis:
    verdict = told("idle", "idle", "EC101", "Every thread is parked at its idle place and no request is outstanding.")
    loop = thread(
        4321,
        "MainThread",
        "engine-loop",
        "vllm.core.input-queue",
        "idle",
        "The engine loop has nothing scheduled and waits for a request",
        frames=IDLE_FRAMES,
    )
    evidence = (
        measured("threads.idle_ratio", 1.0, "ratio", ">=", 1.0, "share of the engine's threads at an idle wait point"),
        measured("requests.outstanding", 0, "requests", "==", 0, "requests running or waiting"),
        measured("process.cpu_ratio", 0.004, "ratio", "<=", 0.05, "CPU use of the engine core", "engine-core"),
    )
    return diagnosis(
        verdict,
        found(verdict, "info", *evidence),
        chain=(
            link(4310, 4310, "frontend-loop", "frontend", "engine-loop", through="zmq sockets"),
            link(
                4321,
                4321,
                "engine-loop",
                "engine-core",
                "ipc-in",
                through="input_queue",
                wait_class="idle",
                meaning="The engine loop has nothing scheduled and waits for a request",
            ),
        ),
        processes=(frontend_row(), core_row(loop)),
        gpus=(
            GpuSample(
                index=0,
                name=H200,
                utilization_percent=0,
                memory_activity_percent=0,
                power_watts=78.2,
                power_limit_watts=700,
                memory_used_bytes=64_530_000_000,
                memory_total_bytes=150_100_000_000,
            ),
        ),
        engine_counters={"running": 0, "waiting": 0, "tokens_per_second": 0, "kv_usage_ratio": 0, "finished": 1812},
    )


def compute_bound() -> Diagnosis:
    summary = "The model forward is the limit and the device is truly busy; nothing is wrong with the threads."
    culprit = Culprit(
        pid=4321,
        process_role="engine-core",
        tid=4321,
        thread_role="engine-loop",
        wait_point="vllm.model.forward",
        wait_class="cpu",
    )
    verdict = told("busy", "compute-bound", "EC103", summary, culprit=culprit)
    loop = thread(
        4321,
        "MainThread",
        "engine-loop",
        "vllm.model.forward",
        "cpu",
        "The model forward runs",
        os_state="R",
        running_ratio=1.0,
        cpu_ratio=0.97,
        gil_ratio=0.61,
        runqueue_ratio=0.004,
        frames=FORWARD_FRAMES,
    )
    evidence = (
        measured("role.wait_ratio", 0.83, "ratio", ">=", 0.5, "share of samples in the model forward", "engine-loop"),
        measured("device.busy_ratio", 0.97, "ratio", ">=", 0.6, "share of the window in which the device was busy"),
        measured("tokens_per_second", 1812.4, "tokens/s", ">", 0, "tokens generated"),
    )
    advice = AdviceLine(
        id="raise-batch",
        text="If this is too slow, the model or the device is the limit: use more devices or a smaller model.",
        expect="more tokens/s at the same batch size",
    )
    return diagnosis(
        verdict,
        found(verdict, "info", *evidence, advice=(advice,)),
        chain=(
            link(4310, 4310, "frontend-loop", "frontend", "engine-loop", through="zmq sockets"),
            link(4321, 4321, "engine-loop", "engine-core", wait_class="cpu", meaning="The model forward runs"),
        ),
        processes=(frontend_row(), core_row(loop)),
        gpus=(
            GpuSample(
                index=0,
                name=H200,
                utilization_percent=97,
                memory_activity_percent=61,
                power_watts=612,
                power_limit_watts=700,
                memory_used_bytes=128_400_000_000,
                memory_total_bytes=150_100_000_000,
            ),
        ),
        engine_counters={"running": 64, "waiting": 3, "tokens_per_second": 1812.4, "kv_usage_ratio": 0.41},
    )


def scheduler_bound() -> Diagnosis:
    summary = "The engine loop spends 72% of its time in scheduling while the device waits."
    culprit = Culprit(
        pid=911,
        process_role="engine-core",
        tid=915,
        thread_role="engine-loop",
        wait_point="engine_core.scheduler.schedule",
        wait_class="cpu",
    )
    verdict = told("slow", "scheduler-bound", "EC401", summary, culprit=culprit, confidence="medium")
    rows = (
        thread(911, "MainThread", "helper", "python.main.join", "peer"),
        thread(
            914, "IPCLoop", "ipc", "engine_core.ipc.poll", "idle", cpu_ratio=0.03, gil_ratio=0.01, runqueue_ratio=0.02
        ),
        thread(
            915,
            "EngineCoreLoop",
            "engine-loop",
            "engine_core.scheduler.schedule",
            "cpu",
            "The scheduler matches prefixes and books blocks",
            os_state="R",
            cpu_ratio=0.94,
            gil_ratio=0.91,
            runqueue_ratio=0.05,
            frames=(
                "_match_prefix (engine_core/kv_cache.py:88)",
                "schedule (engine_core/scheduler.py:141)",
                "step (engine_core/loop.py:77)",
                "run (engine_core/loop.py:52)",
                "run (threading.py:1010)",
            ),
        ),
        thread(916, "OutputProcessor", "output", "engine_core.output.queue", "idle", cpu_ratio=0.02),
    )
    evidence = (
        measured("loop.schedule_ratio", 0.72, "ratio", ">=", 0.5, "share of samples in scheduling", "engine-loop"),
        measured("queue.waiting", 4810, "requests", ">=", 500, "requests waiting"),
        measured("step.mean_seconds", 0.41, "seconds", ">", 0.1, "time of one engine step"),
    )
    advice = (
        AdviceLine(
            id="lower-max-num-seqs",
            text="Lower --max-num-seqs (now 100000); the scheduler walks every one of them in each step.",
            expect="the share of time in scheduling falls below 20%",
            command="enginectl run-demo --model qwen3-embedding-0.6b --max-num-seqs 64 --concurrency 64"
            " --rate 0 --port 8000",
        ),
        AdviceLine(id="limit-queue", text="Limit the number of requests that clients may queue."),
    )
    hot = Finding(
        code="EC602",
        finding="cpu-starved",
        state="slow",
        severity="warning",
        confidence="low",
        summary="Runnable threads waited 5% of the time for a core.",
    )
    return diagnosis(
        verdict,
        found(verdict, "warning", *evidence, advice=advice),
        hot,
        chain=(
            link(905, 905, "frontend-loop", "frontend", "ipc", through="zmq dealer"),
            link(911, 914, "ipc", "engine-core", "output", through="final_output_queue"),
            link(911, 916, "output", "engine-core", "engine-loop", through="output_queue"),
            link(
                911,
                915,
                "engine-loop",
                "engine-core",
                wait_class="cpu",
                meaning="The scheduler matches prefixes and books blocks",
            ),
        ),
        processes=(
            process(
                905,
                "frontend",
                "engine_core frontend",
                thread(905, "MainThread", "frontend-loop", "engine_core.frontend.select", "idle", cpu_ratio=0.08),
                engine="engine_core",
                engine_version="1.0",
            ),
            process(911, "engine-core", "engine_core", *rows, engine="engine_core", engine_version="1.0"),
        ),
        engine_counters={"running": 12, "waiting": 4810, "tokens_per_second": 31.5, "kv_usage_ratio": 0.22},
        gaps=(NO_GPU,),
    )


def undecided() -> Diagnosis:
    verdict = told(
        "unknown",
        "insufficient-evidence",
        "EC903",
        "One dump shows the engine loop in a device wait; a long step and a hang look alike from here.",
        outcome="undecided",
        confidence="low",
        candidates=("device-hang", "compute-bound", "collective-hang"),
        needs=("second-sample", "gpu", "peer-stacks"),
    )
    frames = ("synchronize (torch/cuda/streams.py:255)", *FORWARD_FRAMES[2:])
    loop = thread(
        4321,
        "MainThread",
        "engine-loop",
        "torch.cuda.event-sync",
        "device",
        "Waits until the device has finished the queued work",
        frames=frames,
        os_state=None,
        cpu_ratio=None,
        gil_ratio=None,
        runqueue_ratio=None,
    )
    evidence = (measured("engine_loop.wait_class", "device", "", "==", "device", "the engine loop waits for"),)
    return diagnosis(
        verdict,
        found(verdict, "info", *evidence),
        chain=(link(4321, 4321, "engine-loop", "engine-core", "device", through="cuda event", wait_class="device"),),
        processes=(process(4321, "engine-core", "VLLM::EngineCore", loop, os_state=""),),
        tiers=(Tier(name="T2", reached=True, adds="Python stacks: where each thread stands"),),
        gaps=(
            Gap(source="engine-counters", reason="a dump carries none", remedy="state them in a facts file: --facts"),
        ),
        cost=Cost(wall_seconds=0.0, pause_seconds_max=0.0, samples=1),
        understood=Understood(formats=("py-spy text",), processes=1, threads=1, frames=9, lines=14, lines_skipped=2),
    )


def attach_denied() -> Diagnosis:
    verdict = told(
        "unknown",
        "attach-denied",
        "EC901",
        "Stacks could not be read: the container lacks the capability SYS_PTRACE.",
        outcome="undecided",
        confidence="low",
        candidates=("device-hang", "collective-hang", "request-lost"),
        needs=("peer-stacks", "second-sample"),
    )
    evidence = (
        measured("tokens.frozen_seconds", 41.0, "seconds", ">", 5, "no token was produced for"),
        measured("requests.running", 8, "requests", ">", 0, "requests running"),
        Evidence(fact="loop.wait_class", of="engine-loop", op="==", threshold="device"),
    )
    pod = (
        "Add these lines to the container; save the evidence first, since a redeploy loses the hang:\n"
        '  securityContext:\n    capabilities:\n      add: ["SYS_PTRACE"]\n'
        "Or attach from outside:\n"
        "$ kubectl debug -it vllm-0 --image=python:3.12-slim --target=vllm --profile=sysadmin -- bash"
    )
    row = ThreadRow(
        tid=77,
        name="VLLM::EngineCor",
        role="engine-loop",
        wait_point="",
        wait_class="unknown",
        activity="waiting",
        os_state="S",
        cpu_ratio=0.0,
        runqueue_ratio=0.0,
    )
    return diagnosis(
        verdict,
        found(verdict, "warning", *evidence),
        processes=(process(77, "engine-core", "VLLM::EngineCore", row, python_version=""),),
        gpus=(
            GpuSample(
                index=0,
                name=H200,
                utilization_percent=100,
                memory_activity_percent=0,
                power_watts=121,
                power_limit_watts=700,
            ),
        ),
        engine_counters={"running": 8, "waiting": 0, "tokens_per_second": 0},
        tiers=(*TIERS[:2], Tier(name="T2", reached=False, adds=TIERS[2].adds, unlock=pod)),
        gaps=(
            Gap(source="stacks", reason="ptrace is refused (EPERM): no CAP_SYS_PTRACE in this container", remedy=pod),
            Gap(source="kernel log", reason="/dev/kmsg may not be read here", remedy="$ sudo dmesg | grep -i xid"),
        ),
        cost=Cost(wall_seconds=2.2, pause_seconds_max=0.0, samples=0),
    )
