"""Hand-built diagnoses of engines that do not move."""

from __future__ import annotations

from tests.render.builders import (
    FORWARD_FRAMES,
    H200,
    NO_GPU,
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

from enginectl.model.diagnosed import AdviceLine, Cost, Culprit, Diagnosis
from enginectl.model.observed import Endpoint, GpuSample


def deadlock() -> Diagnosis:
    summary = "Two threads wait for each other: both bounded queues between them are full."
    culprit = Culprit(
        pid=911,
        process_role="engine-core",
        tid=915,
        thread_role="engine-loop",
        wait_point="engine_core.loop.output-put",
        wait_class="peer",
    )
    verdict = told("hung", "deadlock", "EC605", summary, culprit=culprit)
    put = ("wait (threading.py:355)", "put (queue.py:140)")
    rows = (
        thread(914, "IPCLoop", "ipc", "engine_core.ipc.poll", "idle"),
        thread(
            915,
            "EngineCoreLoop",
            "engine-loop",
            "engine_core.loop.output-put",
            "peer",
            "The engine loop waits for room in output_queue",
            frames=(*put, "emit (engine_core/loop.py:120)", "run (engine_core/loop.py:58)"),
        ),
        thread(
            916,
            "OutputProcessor",
            "output",
            "engine_core.output.abort-put",
            "peer",
            "The output thread waits for room in input_queue",
            frames=(*put, "request_abort (engine_core/output.py:64)", "run (engine_core/output.py:41)"),
        ),
    )
    evidence = (
        measured("cycle.length", 2, "threads", ">=", 2, "threads that wait for each other in a ring"),
        measured("threads.moved", False, "", "==", False, "any thread of the ring moved in 12.4 s"),
    )
    advice = AdviceLine(
        id="save-then-restart",
        text="Save the evidence, then restart: nothing from outside can undo the cycle.",
        command="enginectl record -o deadlock.ecrec --pid 911",
    )
    return diagnosis(
        verdict,
        found(verdict, "critical", *evidence, advice=(advice,)),
        chain=(
            link(905, 905, "frontend-loop", "frontend", "ipc", through="zmq dealer"),
            link(911, 914, "ipc", "engine-core", "output", through="final_output_queue"),
            link(
                911,
                916,
                "output",
                "engine-core",
                "engine-loop",
                through="input_queue (full)",
                meaning="The output thread waits for room in input_queue",
            ),
            link(
                911,
                915,
                "engine-loop",
                "engine-core",
                "output",
                through="output_queue (full)",
                meaning="The engine loop waits for room in output_queue",
            ),
        ),
        processes=(process(911, "engine-core", "engine_core", *rows, engine="engine_core", engine_version="1.0"),),
        engine_counters={"running": 8, "waiting": 40, "tokens_per_second": 0},
        gaps=(NO_GPU,),
        cost=Cost(wall_seconds=12.4, pause_seconds_max=0.014, samples=9),
    )


def process_stopped() -> Diagnosis:
    summary = "Worker process 4330 was stopped with a signal; everything above it waits for it."
    culprit = Culprit(pid=4330, process_role="worker", rank=0)
    verdict = told("hung", "process-stopped", "EC608", summary, culprit=culprit)
    loop = thread(
        4321,
        "MainThread",
        "engine-loop",
        "vllm.core.wait-worker",
        "peer",
        "The engine core waits for the worker's reply",
        cpu_ratio=0.31,
        frames=("acquire_read (vllm/distributed/device_communicators/shm_broadcast.py:531)",),
    )
    worker = thread(4330, "MainThread", "worker-loop", "vllm.model.forward", "cpu", "The model forward", os_state="T")
    evidence = (
        measured("process.os_state", "T", "", "==", "T", "state of the process", "worker"),
        measured("tokens.frozen_seconds", 12.4, "seconds", ">", 5, "no token was produced for"),
    )
    advice = (
        AdviceLine(id="find-who", text="Find out who stopped it (a debugger, a job control signal) before you go on."),
        AdviceLine(id="continue", text="Let it run again.", expect="tokens move at once", command="kill -CONT 4330"),
    )
    return diagnosis(
        verdict,
        found(verdict, "critical", *evidence, advice=advice),
        chain=(
            link(4310, 4310, "frontend-loop", "frontend", "engine-loop", through="zmq sockets"),
            link(4321, 4321, "engine-loop", "engine-core", "worker:worker-loop", through="shared-memory ring"),
            link(4330, None, "worker-loop", "worker", wait_class="unknown", meaning="The process is stopped (state T)"),
        ),
        processes=(
            frontend_row(),
            core_row(loop),
            process(4330, "worker", "VLLM::Worker_TP0", worker, rank=0, os_state="T"),
        ),
        engine_counters={"running": 16, "waiting": 2, "tokens_per_second": 0, "kv_usage_ratio": 0.37},
    )


def device_hang() -> Diagnosis:
    summary = "Device work never completes: the engine loop has waited 12.4 s in a device synchronisation."
    culprit = Culprit(
        pid=4321,
        process_role="engine-core",
        tid=4321,
        thread_role="engine-loop",
        wait_point="torch.cuda.event-sync",
        wait_class="device",
    )
    verdict = told("hung", "device-hang", "EC701", summary, culprit=culprit)
    loop = thread(
        4321,
        "MainThread",
        "engine-loop",
        "torch.cuda.event-sync",
        "device",
        "Waits until the device has finished the queued work",
        cpu_ratio=1.0,
        gil_ratio=0.0,
        os_state="R",
        frames=("synchronize (torch/cuda/streams.py:255)", *FORWARD_FRAMES[2:]),
    )
    evidence = (
        measured("role.moved", False, "", "==", False, "the engine loop's stack moved", "engine-loop"),
        measured("tokens.frozen_seconds", 12.4, "seconds", ">", 5, "no token was produced for"),
        measured("device.power_ratio", 0.17, "ratio", "<", 0.3, "power drawn, as a share of the limit", "GPU 0"),
        measured("device.memory_activity_ratio", 0.0, "ratio", "<", 0.02, "memory traffic of the device", "GPU 0"),
    )
    advice = (
        AdviceLine(
            id="native",
            text="See which kernel it is before restarting.",
            command="enginectl doctor --pid 4321 --native",
        ),
        AdviceLine(id="xid", text="Look for a device error in the kernel log.", command="sudo dmesg | grep -i xid"),
        AdviceLine(id="restart", text="Save the evidence, then restart the engine; a hung kernel does not come back."),
    )
    return diagnosis(
        verdict,
        found(verdict, "critical", *evidence, advice=advice),
        chain=(
            link(4310, 4310, "frontend-loop", "frontend", "engine-loop", through="zmq sockets"),
            link(
                4321,
                4321,
                "engine-loop",
                "engine-core",
                "device",
                through="cuda event",
                wait_class="device",
                wait_point="torch.cuda.event-sync",
                meaning="Waits until the device has finished the queued work",
            ),
        ),
        processes=(frontend_row(), core_row(loop)),
        gpus=(
            GpuSample(
                index=0,
                name=H200,
                utilization_percent=100,
                memory_activity_percent=0,
                power_watts=121.4,
                power_limit_watts=700,
                memory_used_bytes=128_400_000_000,
                memory_total_bytes=150_100_000_000,
                throttle_reasons=("gpu_idle",),
            ),
        ),
        engine_counters={"running": 8, "waiting": 12, "tokens_per_second": 0, "kv_usage_ratio": 0.55},
        endpoint=Endpoint(url="http://127.0.0.1:8000/metrics", state="ok", seconds=0.02),
        notes=("Confirmed with a second look of 10 s: nothing moved.",),
        cost=Cost(wall_seconds=12.4, pause_seconds_max=0.013, samples=9),
    )


def collective_hang() -> Diagnosis:
    summary = "Seven of eight ranks stand in an all-reduce; rank 3 never entered it and stands in a file read."
    culprit = Culprit(
        pid=5003,
        process_role="worker",
        rank=3,
        tid=5003,
        thread_role="worker-loop",
        wait_point="python.file.read",
        wait_class="io",
    )
    verdict = told("hung", "collective-hang", "EC702", summary, culprit=culprit)
    reduce = (
        "all_reduce (torch/distributed/distributed_c10d.py:2932)",
        "forward (vllm/model_executor/layers/linear.py:1402)",
    )
    read = ("readinto (socket.py:720)", "load_lora (vllm/lora/worker_manager.py:121)", *FORWARD_FRAMES[2:4])
    workers = []
    for rank in range(8):
        odd = rank == 3
        point, group = ("python.file.read", "io") if odd else ("torch.dist.all-reduce", "collective")
        meaning = "Reads a file" if odd else "Waits in an all-reduce for the other ranks"
        main = thread(
            5000 + rank,
            "MainThread",
            "worker-loop",
            point,
            group,
            meaning,
            cpu_ratio=0.01 if odd else 1.0,
            frames=read if odd else (*reduce, *FORWARD_FRAMES[1:4]),
        )
        copy = thread(5100 + rank, "WorkerAsyncOutputCopy", "async-output-copy", "vllm.worker.copy-queue", "idle")
        extra = thread(5200 + rank, "pt_nccl_watchdg", "monitor", "unknown", "unknown", activity="unknown")
        workers.append(process(5000 + rank, "worker", f"VLLM::Worker_TP{rank}", main, copy, extra, rank=rank))
    loop = thread(
        4321, "MainThread", "engine-loop", "vllm.core.wait-worker", "peer", "Waits for rank 0's reply", cpu_ratio=0.4
    )
    evidence = (
        measured("ranks.in_collective", 7, "ranks", ">=", 1, "ranks that wait in the collective"),
        measured("ranks.odd", "rank 3", "", "!=", "", "the rank that stands elsewhere"),
        measured("tokens.frozen_seconds", 300.0, "seconds", ">", 5, "no token was produced for"),
    )
    advice = AdviceLine(
        id="look-at-rank",
        text="Look at rank 3 alone; its peers are victims.",
        command="enginectl doctor --pid 5003 --only-pid",
    )
    return diagnosis(
        verdict,
        found(verdict, "critical", *evidence, advice=(advice,)),
        chain=(
            link(4310, 4310, "frontend-loop", "frontend", "engine-loop", through="zmq sockets"),
            link(4321, 4321, "engine-loop", "engine-core", "worker:worker-loop", through="shared-memory ring"),
            link(
                5000, 5000, "worker-loop", "worker", "worker:worker-loop", through="all-reduce", wait_class="collective"
            ),
            link(
                5003,
                5003,
                "worker-loop",
                "worker",
                wait_class="io",
                wait_point="python.file.read",
                meaning="Reads a file",
            ),
        ),
        processes=(frontend_row(), core_row(loop), *workers),
        gpus=tuple(
            GpuSample(
                index=i,
                name=H200,
                utilization_percent=0 if i == 3 else 100,
                memory_activity_percent=0,
                power_watts=80 if i == 3 else 131,
                power_limit_watts=700,
            )
            for i in range(8)
        ),
        engine_counters={"running": 32, "waiting": 100, "tokens_per_second": 0, "kv_usage_ratio": 0.8},
        buckets=(
            "7 ranks (0-2, 4-7): torch.dist.all-reduce, wait in a collective",
            "1 rank (3): python.file.read <- the odd one",
        ),
        cost=Cost(wall_seconds=12.9, pause_seconds_max=0.021, samples=9),
    )
