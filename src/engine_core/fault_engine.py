"""What faults change inside the engine_core process; each function brings about one row of `faults.FAULTS`.

Every function gets the whole `EngineCore`, before its threads start, and replaces a method or starts a thread.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from engine_core.process import start_named_thread

if TYPE_CHECKING:
    from engine_core.core import EngineCore
    from engine_core.loop import StepOutputs
    from engine_core.messages import EngineCoreOutputs
    from engine_core.model import ModelRunner

_HEALTHY_STEPS = 12


def mark_active(run_dir: str, name: str) -> None:
    """Tell the driver that the code of a fault has been reached."""
    Path(run_dir, f"{name}.active").touch()


def _armed(engine: EngineCore) -> bool:
    """Whether the engine has worked for a while, so that its counters have moved before the fault."""
    return engine.engine_loop.num_steps >= _HEALTHY_STEPS


def watch_warm_up(runner: ModelRunner) -> None:
    """warm-up: report the first forward."""
    runner.model.backbone.register_forward_pre_hook(lambda *_: mark_active(runner.config.run_dir, "warm-up"))


def watch_schedule_time(engine: EngineCore) -> None:
    """slow-scheduler: report once `schedule` takes 60 % of the loop's time over twenty steps."""
    schedule = engine.scheduler.schedule
    spans: deque[tuple[float, float]] = deque(maxlen=20)

    def timed_schedule() -> Any:
        started = time.monotonic()
        output = schedule()
        ended = time.monotonic()
        spans.append((started, ended))
        wall = ended - spans[0][0]
        if len(spans) == spans.maxlen and sum(end - start for start, end in spans) >= 0.6 * wall:
            mark_active(engine.config.run_dir, "slow-scheduler")
        return output

    setattr(engine.scheduler, "schedule", timed_schedule)  # noqa: B010 - mypy refuses to assign to a method


DEVICE_SPIN_SECONDS = 40


def report_blocked_send(engine: EngineCore) -> None:
    """client-stops-reading: report when the socket is full, then send, which blocks."""
    send = engine.ipc_loop._send

    def _send(frames: list[bytes]) -> None:
        if not engine.ipc_loop.output_socket.poll(500, zmq.POLLOUT):
            mark_active(engine.config.run_dir, "client-stops-reading")
        send(frames)

    setattr(engine.ipc_loop, "_send", _send)  # noqa: B010


def lose_requests(engine: EngineCore) -> None:
    """lost-request: a request leaves `input_queue` and never reaches the waiting queue."""
    add_request = engine.scheduler.add_request

    def add_or_lose_request(request: Any) -> None:
        if not _armed(engine):
            add_request(request)

    setattr(engine.scheduler, "add_request", add_or_lose_request)  # noqa: B010


def forward_never_returns(engine: EngineCore) -> None:
    """forward-never-returns: native code waits, without the GIL, for a semaphore nobody posts.

    On a GPU one kernel spins for 40 s by the device's own clock, and ends by itself: the card may be shared.
    """
    if engine.runner.device.type == "cuda":
        return _spin_on_device(engine)
    library = ctypes.CDLL(None)
    semaphore = ctypes.create_string_buffer(64)
    library.sem_init(semaphore, 0, 0)

    def wait_for_device_semaphore(*_: Any) -> None:
        if _armed(engine):
            mark_active(engine.config.run_dir, "forward-never-returns")
            while True:  # a signal may interrupt one wait
                library.sem_wait(semaphore)

    engine.runner.model.backbone.register_forward_pre_hook(wait_for_device_semaphore)


def _spin_on_device(engine: EngineCore) -> None:
    import torch

    cycles = int(DEVICE_SPIN_SECONDS * 1000 * getattr(torch.cuda.get_device_properties(0), "clock_rate", 2_000_000))

    def spin_once(*_: Any) -> None:
        if _armed(engine):
            handle.remove()
            torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
            mark_active(engine.config.run_dir, "forward-never-returns")

    handle = engine.runner.model.backbone.register_forward_pre_hook(spin_once)


class SharedLedger:
    """Checksums of steps and of results, each under a lock, and each of both kept in step with the other's."""

    def __init__(self) -> None:
        self.steps_lock, self.results_lock = threading.Lock(), threading.Lock()
        self.digest = bytes(32)

    def _checksum(self) -> None:
        self.digest = hashlib.sha256(self.digest * (1 << 15)).digest()

    def record_step(self) -> None:
        """Called by EngineCoreLoop: steps, then results."""
        with self.steps_lock:
            self._checksum()
            with self.results_lock:
                self._checksum()

    def record_results(self) -> None:
        """Called by OutputProcessor: results, then steps. The other order: this is the fault."""
        with self.results_lock:
            self._checksum()
            with self.steps_lock:
                self._checksum()


def take_locks_in_both_orders(engine: EngineCore) -> None:
    """lock-order: the engine loop and the output processor share a ledger with two locks."""
    ledger = SharedLedger()
    put_outputs, put_final = engine.engine_loop._put_outputs, engine.output_processor._put_final

    def put_recorded_outputs(outputs: StepOutputs) -> None:
        put_outputs(outputs)
        if _armed(engine):
            ledger.record_step()

    def put_recorded_final(outputs: EngineCoreOutputs) -> None:
        if _armed(engine):
            ledger.record_results()
        put_final(outputs)

    setattr(engine.engine_loop, "_put_outputs", put_recorded_outputs)  # noqa: B010
    setattr(engine.output_processor, "_put_final", put_recorded_final)  # noqa: B010


def loop_dies(engine: EngineCore) -> None:
    """loop-dies: the engine loop meets an error nobody catches, and its thread ends."""
    update_from_output = engine.scheduler.update_from_output

    def update_or_raise(*arguments: Any) -> Any:
        if _armed(engine):
            raise RuntimeError("block table of a running request is inconsistent")
        return update_from_output(*arguments)

    setattr(engine.scheduler, "update_from_output", update_or_raise)  # noqa: B010


def spin_in_python(engine: EngineCore) -> None:
    """hot-thread: a thread that should sleep between two looks at the queues never does."""

    def aggregate_queue_depths() -> None:
        depths: deque[int] = deque(maxlen=512)
        while True:
            depths.append(engine.input_queue.qsize() + engine.output_queue.qsize())
            engine_depth = sum(depths) / len(depths)
            depths.append(int(engine_depth))

    start_named_thread("StatsFlusher", aggregate_queue_depths)


def read_compile_cache(engine: EngineCore) -> None:
    """file-lock: before a forward the compile cache is read, under a lock another process holds."""
    from filelock import FileLock

    lock = FileLock(compile_cache_lock(engine.config.run_dir))

    def load_compiled_shape(*_: Any) -> None:
        if _armed(engine):
            mark_active(engine.config.run_dir, "file-lock")
            with lock:
                Path(lock.lock_file).with_suffix(".shapes").touch()

    engine.runner.model.backbone.register_forward_pre_hook(load_compiled_shape)


def compile_cache_lock(run_dir: str) -> str:
    """Path of the compile cache's lock."""
    return str(Path(run_dir, "compile_cache.lock"))


def engine_function_returns(engine: EngineCore) -> None:
    """crash: the engine gives up in silence; a helper thread that is not a daemon keeps the process."""
    step = engine.engine_loop.step
    reports: deque[str] = deque()
    wanted = threading.Semaphore(0)

    def report_usage() -> None:
        while True:
            wanted.acquire()
            reports.clear()

    def step_or_give_up() -> bool:
        if _armed(engine):
            engine.shutdown.set()
            engine.engine_loop.stopping = True
            return False
        return step()

    setattr(engine.engine_loop, "step", step_or_give_up)  # noqa: B010
    start_named_thread("UsageReporter", report_usage, daemon=False)
