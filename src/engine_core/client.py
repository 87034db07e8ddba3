"""The front end's half of the IPC: starts the engine_core process, sends requests, hands results out."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from engine_core.config import EngineConfig
from engine_core.errors import StartupError, UsageError
from engine_core.messages import (
    ABORT,
    ADD,
    READY,
    SHM,
    AbortRequests,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineReady,
)
from engine_core.metrics import Metrics

_KILL_AFTER_SECONDS = 1.5


@dataclass(slots=True)
class PendingRequest:
    """A request whose client still waits."""

    outputs: asyncio.Queue[EngineCoreOutput] = field(default_factory=asyncio.Queue)
    arrived: float = field(default_factory=time.monotonic)
    finished: bool = False


class EngineClient:
    """One engine core process and the sockets to it. Used on the event loop's thread alone."""

    def __init__(self, config: EngineConfig, remove_run_dir: bool = False) -> None:
        self.config = config
        self.owns_run_dir = remove_run_dir or not config.run_dir
        self.metrics = Metrics(config.model_spec.name)
        self.pending: dict[str, PendingRequest] = {}
        self.encoder = msgspec.msgpack.Encoder()
        self.outputs_decoder = msgspec.msgpack.Decoder(EngineCoreOutputs)
        self.process: subprocess.Popen[bytes] | None = None
        self.ready: EngineReady | None = None
        self.before_receive: Callable[[], asyncio.Future[None] | None] = lambda: None
        self._claim_run_dir()
        self.context = zmq.asyncio.Context()
        self.input_socket = self._bind(zmq.PUSH, config.input_address)
        self.output_socket = self._bind(zmq.PULL, config.output_address)

    def _claim_run_dir(self) -> None:
        """Make the directory of the sockets ours. Errors: UsageError when another engine has it."""
        if not self.config.run_dir:
            self.config.run_dir = tempfile.mkdtemp(prefix="engine_core-")
        os.makedirs(self.config.run_dir, exist_ok=True)
        for address in (self.config.input_address, self.config.output_address):
            if os.path.exists(address.removeprefix("ipc://")):
                raise UsageError(f"ipc path {address.removeprefix('ipc://')} is taken by another engine")

    def _bind(self, kind: int, address: str) -> zmq.asyncio.Socket:
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.SNDHWM, 0 if kind == zmq.PUSH else self.config.ipc_hwm)
        socket.setsockopt(zmq.RCVHWM, self.config.ipc_hwm)
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(address)
        return socket

    def start_process(self) -> int:
        """Start the engine core and return its pid."""
        command = [
            sys.executable,
            "-m",
            "engine_core.core",
            str(os.getpid()),
            msgspec.json.encode(self.config).decode(),
        ]
        stderr = subprocess.PIPE if "log-pipe-full" in self.config.faults else None
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr)
        return self.process.pid

    async def wait_until_ready(self) -> EngineReady:
        """Wait for the engine core's first message. Errors: StartupError when its process ends first."""
        receiving = asyncio.ensure_future(self.output_socket.recv_multipart())
        while not receiving.done():
            await asyncio.wait([receiving], timeout=0.1)
            if self.process is not None and (code := self.process.poll()) is not None:
                receiving.cancel()
                raise StartupError(f"the engine core ended while starting (exit status {code})")
        kind, payload = receiving.result()
        if kind != READY:
            raise StartupError("the engine core's first message was not READY")
        self.ready = msgspec.msgpack.decode(payload, type=EngineReady)
        self.metrics.set_ready(self.ready)
        if "never-admit" not in self.config.faults:
            capacity = self.ready.num_blocks * self.ready.block_size
            self.config.max_model_len = min(self.config.max_model_len, capacity)
        return self.ready

    async def output_handler(self) -> None:
        """Receive results for ever and hand them to the requests that wait for them."""
        while True:
            if (held := self.before_receive()) is not None:
                await held
            kind, payload = await self.output_socket.recv_multipart()
            if kind == SHM:
                path = Path(payload.decode())
                payload = path.read_bytes()
                path.unlink()
            self._hand_out(self.outputs_decoder.decode(payload))

    def _hand_out(self, outputs: EngineCoreOutputs) -> None:
        if outputs.stats is not None:
            self.metrics.count_stats(outputs.stats)
        for output in outputs.outputs:
            pending = self.pending.get(output.request_id)
            self.metrics.count_output(output, time.monotonic() - pending.arrived if pending else None)
            if pending is not None:
                pending.outputs.put_nowait(output)

    def encode_prompt(self, token_ids: list[int]) -> bytes:
        """The prompt frame of a request."""
        return self.encoder.encode(token_ids)

    async def add_request(self, request: EngineCoreRequest, prompt: bytes) -> PendingRequest:
        """Send a request; its results arrive in the returned object's queue."""
        pending = self.pending[request.request_id] = PendingRequest()
        await self.input_socket.send_multipart([ADD, self.encoder.encode(request), prompt])
        return pending

    async def abort(self, request_ids: tuple[str, ...]) -> None:
        """Tell the engine that nobody waits for these any more."""
        await self.input_socket.send_multipart([ABORT, self.encoder.encode(AbortRequests(request_ids))])

    def close(self) -> None:
        """End the engine core, even a stopped or hung one, and remove every file of this engine."""
        process = self.process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(_KILL_AFTER_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.context.destroy(linger=0)
        if process is not None:
            for path in glob.glob(f"/dev/shm/engine_core-{process.pid}-*"):
                os.unlink(path)
        self._remove_run_dir()

    def _remove_run_dir(self) -> None:
        """Remove the sockets, and the directory when it is ours or is empty then."""
        if self.owns_run_dir:
            shutil.rmtree(self.config.run_dir, ignore_errors=True)
            return
        for address in (self.config.input_address, self.config.output_address):
            Path(address.removeprefix("ipc://")).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            os.rmdir(self.config.run_dir)
