"""Every hand-built diagnosis by name, and one timeline."""

from __future__ import annotations

from collections.abc import Callable

from tests.render import situations_hung as hung
from tests.render import situations_moving as moving

from enginectl.model.diagnosed import Diagnosis
from enginectl.model.timeline import Timeline, TimelineRow, TimelineSeries

DIAGNOSES: dict[str, Callable[[], Diagnosis]] = {
    "idle": moving.idle,
    "compute-bound": moving.compute_bound,
    "scheduler-bound": moving.scheduler_bound,
    "undecided": moving.undecided,
    "attach-denied": moving.attach_denied,
    "deadlock": hung.deadlock,
    "process-stopped": hung.process_stopped,
    "device-hang": hung.device_hang,
    "collective-hang": hung.collective_hang,
}


def timeline() -> Timeline:
    """Twelve snapshots in which the engine loop goes from work into a device wait and stays there."""
    times = tuple(round(index * 1.05, 2) for index in range(12))
    loop = ("cpu", "cpu", "device", "cpu", *("device",) * 8)
    front = ("idle", "idle", "idle", "cpu", "idle", "", "", *("idle",) * 5)
    power = (610.0, 640.0, 655.0, 620.0, 180.0, 122.0, 121.0, 121.0, None, 121.0, 121.0, 121.0)

    def row(pid: int, tid: int, owner: str, role: str, name: str, classes: tuple[str, ...]) -> TimelineRow:
        return TimelineRow(pid=pid, tid=tid, process_role=owner, role=role, name=name, classes=classes)

    def same(value: float) -> tuple[float, ...]:
        return (value,) * 12

    return Timeline(
        times=times,
        rows=(
            row(4310, 4310, "frontend", "frontend-loop", "MainThread", front),
            row(4321, 4321, "engine-core", "engine-loop", "MainThread", loop),
            row(4321, 4325, "engine-core", "ipc-in", "Thread-3 (process_input_sockets)", ("idle",) * 12),
            row(
                4321, 4326, "engine-core", "ipc-out", "Thread-4 (process_output_sockets)", ("ipc-send", *("idle",) * 11)
            ),
            row(4321, 4330, "engine-core", "helper", "tqdm_monitor", ("timer",) * 12),
        ),
        gpus=(
            TimelineSeries(name="GPU 0 utilisation", unit="percent", maximum=100.0, values=same(100.0)),
            TimelineSeries(name="GPU 0 power", unit="watts", maximum=700.0, values=power),
        ),
        counters=(
            TimelineSeries(name="tokens/s", values=(1800.0, 1812.0, 1790.0, 400.0, *(0.0,) * 8)),
            TimelineSeries(name="running", values=same(8.0)),
            TimelineSeries(name="KV cache", unit="ratio", maximum=1.0, values=same(0.55)),
        ),
    )
