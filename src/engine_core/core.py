"""The engine_core process: builds the engine, starts its threads, and waits for the end.

Run by the front end as `python -m engine_core.core PARENT_PID CONFIG_JSON`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import sys
import threading

import msgspec
import setproctitle

from engine_core.config import EngineConfig
from engine_core.errors import EngineCoreError
from engine_core.ipc import IPCLoop, WakeQueue
from engine_core.kv_cache import KVCacheManager
from engine_core.loop import EngineCoreLoop, StepOutputs
from engine_core.messages import READY, AbortRequests, EngineCoreOutputs, EngineReady
from engine_core.model import ModelRunner
from engine_core.output import OutputProcessor
from engine_core.process import die_with_parent, start_named_thread
from engine_core.scheduler import Request, Scheduler
from engine_core.tokenizer import eos_token_id, load_tokenizer
from engine_core.worker import InlineExecutor, ThreadExecutor

_STOP_SECONDS = 1.0


class EngineCore:
    """Everything of the engine core: queues, scheduler, model, and the objects its threads run."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.shutdown = threading.Event()
        self.runner = ModelRunner(config)
        self.runner.load_weights()
        if config.faults:
            from engine_core.faults import install_in_runner

            install_in_runner(self.runner)
        self.runner.warm_up()
        self.input_queue: queue.Queue[Request | AbortRequests | None] = queue.Queue(config.queue_size)
        self.output_queue: queue.Queue[StepOutputs | None] = queue.Queue(config.output_queue_size or config.queue_size)
        self.final_output_queue: WakeQueue[EngineCoreOutputs] = WakeQueue(config.queue_size)
        tokenizer = load_tokenizer(config.model_spec)
        kv_cache = KVCacheManager(self.runner.num_blocks, config.block_size, config.enable_prefix_caching)
        self.scheduler = Scheduler(config, kv_cache, eos_token_id(tokenizer))
        executor = ThreadExecutor(self.runner) if config.worker_use_thread else InlineExecutor(self.runner)
        self.ipc_loop = IPCLoop(config, self.input_queue, self.final_output_queue)
        self.engine_loop = EngineCoreLoop(config, self.scheduler, executor, self.input_queue, self.output_queue)
        self.output_processor = OutputProcessor(
            config, tokenizer, self.output_queue, self.final_output_queue, self.input_queue
        )
        self.threads: list[threading.Thread] = []

    def start(self) -> None:
        """Tell the front end that the engine is ready and start the three threads."""
        self.startup_handshake()
        self.threads = [
            start_named_thread("IPCLoop", self.ipc_loop.run),
            start_named_thread("EngineCoreLoop", self.engine_loop.run_busy_loop),
            start_named_thread("OutputProcessor", self.output_processor.run),
        ]

    def startup_handshake(self) -> None:
        """Send READY with what the front end must know."""
        ready = EngineReady(
            pid=os.getpid(),
            device=self.runner.device.type,
            weights=self.config.model_spec.weights,
            num_blocks=self.runner.num_blocks,
            block_size=self.config.block_size,
        )
        self.ipc_loop.output_socket.send_multipart([READY, msgspec.msgpack.encode(ready)])

    def wait_for_shutdown(self) -> None:
        """Supervise: wait until the process is told to end."""
        self.shutdown.wait()

    def stop(self) -> bool:
        """End the three threads where they can be ended; False when one of them hangs."""
        for stop in (self.engine_loop.stop, lambda: self.output_queue.put_nowait(None), self.ipc_loop.stop):
            with contextlib.suppress(queue.Full):
                stop()
        for thread in self.threads:
            thread.join(_STOP_SECONDS)
        return not any(thread.is_alive() for thread in self.threads)


def run_engine_core(config: EngineConfig) -> None:
    """Build the engine, serve, and return when it has been told to end.

    Errors: EngineCoreError when the model cannot be built.
    """
    engine = EngineCore(config)
    signal.signal(signal.SIGTERM, lambda *_: engine.shutdown.set())
    if config.faults:
        from engine_core.faults import install_in_engine

        install_in_engine(engine)
    engine.start()
    engine.wait_for_shutdown()
    if not engine.stop():
        os._exit(0)  # a hung thread would be torn down while it is inside native code


def main() -> None:
    """Entry point of the process."""
    setproctitle.setproctitle("engine_core")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the front end decides when to end
    die_with_parent(int(sys.argv[1]))
    config = msgspec.json.decode(sys.argv[2], type=EngineConfig)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="engine_core: %(message)s")
    try:
        run_engine_core(config)
    except EngineCoreError as error:
        print(f"engine_core: {error}", file=sys.stderr, flush=True)
        os._exit(error.exit_code)


if __name__ == "__main__":
    main()
