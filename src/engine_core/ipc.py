"""IPCLoop: the one thread of the engine core that touches the ZMQ sockets."""

from __future__ import annotations

import contextlib
import os
import queue
import time
from typing import Generic, TypeVar

import msgspec
import zmq

from engine_core.config import EngineConfig
from engine_core.errors import RequestError
from engine_core.kv_cache import hash_request_tokens
from engine_core.messages import (
    ABORT,
    ADD,
    OUTPUTS,
    SHM,
    AbortRequests,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
)
from engine_core.scheduler import Request

T = TypeVar("T")
SHM_DIRECTORY = "/dev/shm"
_SHM_RETRY_SECONDS = (0.01, 0.5)


class WakeQueue(queue.Queue[T], Generic[T]):
    """A queue whose `put` also makes a file descriptor readable, for a thread that polls sockets."""

    def __init__(self, maxsize: int = 0) -> None:
        super().__init__(maxsize)
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """Put, then wake the poller."""
        super().put(item, block, timeout)
        self.wake()

    def wake(self) -> None:
        """Make `wake_fd` readable."""
        os.eventfd_write(self.wake_fd, 1)

    def clear_wake(self) -> None:
        """Make `wake_fd` unreadable again; call before emptying the queue."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.wake_fd)


class IPCLoop:
    """Receives, decodes and queues requests; encodes and sends results."""

    def __init__(
        self,
        config: EngineConfig,
        input_queue: queue.Queue[Request | AbortRequests | None],
        final_output_queue: WakeQueue[EngineCoreOutputs],
    ) -> None:
        self.config, self.input_queue, self.final_output_queue = config, input_queue, final_output_queue
        self.context = zmq.Context()
        self.input_socket = self._connect(zmq.PULL, config.input_address)
        self.output_socket = self._connect(zmq.PUSH, config.output_address)
        self.poller = zmq.Poller()
        self.poller.register(self.input_socket, zmq.POLLIN)
        self.poller.register(final_output_queue.wake_fd, zmq.POLLIN)
        self.header_decoder = msgspec.msgpack.Decoder(EngineCoreRequest)
        self.prompt_decoder = msgspec.msgpack.Decoder(list[int])
        self.abort_decoder = msgspec.msgpack.Decoder(AbortRequests)
        self.encoder = msgspec.msgpack.Encoder()
        self.num_shm_files = 0
        self.stopping = False

    def _connect(self, kind: int, address: str) -> zmq.Socket[bytes]:
        """PUSH and PULL block at their high-water mark; they never drop. 0 means unlimited."""
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.SNDHWM, self.config.ipc_hwm)
        socket.setsockopt(zmq.RCVHWM, self.config.ipc_hwm)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(address)
        return socket

    def run(self) -> None:
        """Serve both directions until told to stop."""
        while not self.stopping:
            if self._poll():
                self._receive()
            self._flush_outputs()

    def _poll(self) -> bool:
        """Wait for a request or a result; True when requests are there."""
        ready = dict(self.poller.poll())
        self.final_output_queue.clear_wake()
        return self.input_socket in ready

    def _receive(self) -> None:
        """Move every request that has arrived into `input_queue`."""
        while not self.stopping:
            try:
                frames = self.input_socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            message = self._decode(frames)
            if message is not None:
                self.put_input(message)

    def put_input(self, message: Request | AbortRequests) -> None:
        """Hand a message to the engine loop; blocks while a bounded queue is full."""
        self.input_queue.put(message)

    def _decode(self, frames: list[bytes]) -> Request | AbortRequests | None:
        """Frames -> message; a request that cannot be served is answered at once and gives None."""
        if frames[0] == ABORT:
            return self.abort_decoder.decode(frames[1])
        if frames[0] != ADD:
            return None
        header = self.header_decoder.decode(frames[1])
        try:
            token_ids = self.prompt_decoder.decode(frames[2])
            self.validate_prompt(token_ids)
        except (RequestError, msgspec.DecodeError) as error:
            refusal = EngineCoreOutput(request_id=header.request_id, finish_reason="error", error=str(error))
            self._send(self._encode(EngineCoreOutputs(outputs=[refusal])))
            return None
        hashes = hash_request_tokens(token_ids, self.config.block_size) if self.config.enable_prefix_caching else []
        if header.truncate_prompt_tokens is not None and header.truncate_prompt_tokens < len(token_ids):
            token_ids = token_ids[: header.truncate_prompt_tokens]
            del hashes[len(token_ids) // self.config.block_size :]
        return Request(header, token_ids, hashes)

    def validate_prompt(self, token_ids: list[int]) -> None:
        """Errors: RequestError for an empty prompt or ids outside the vocabulary."""
        if not token_ids:
            raise RequestError("the prompt is empty")
        if min(token_ids) < 0 or max(token_ids) >= self.config.model_spec.vocab_size:
            raise RequestError(f"token ids must be in 0..{self.config.model_spec.vocab_size - 1}")

    def _flush_outputs(self) -> None:
        """Send every result that is ready."""
        while not self.stopping:
            try:
                outputs = self.final_output_queue.get_nowait()
            except queue.Empty:
                return
            self._send(self._encode(outputs))

    def _encode(self, outputs: EngineCoreOutputs) -> list[bytes]:
        payload = self.encoder.encode(outputs)
        if self.config.shm_results and len(payload) > self.config.shm_threshold_bytes:
            return [SHM, self._write_shm(payload).encode()]
        return [OUTPUTS, payload]

    def _write_shm(self, payload: bytes) -> str:
        """Write a large result to a shared-memory file; while its file system is full, try again and again."""
        self.num_shm_files += 1
        path = f"{SHM_DIRECTORY}/engine_core-{os.getpid()}-{self.num_shm_files}"
        pause, longest_pause = _SHM_RETRY_SECONDS
        while True:
            try:
                with open(path, "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, len(payload))
                    file.write(payload)
                return path
            except OSError:
                os.unlink(path)
                time.sleep(pause)
                pause = min(pause * 2, longest_pause)

    def _send(self, frames: list[bytes]) -> None:
        """Send one message; blocks while the peer's and our high-water marks are reached."""
        self.output_socket.send_multipart(frames)

    def stop(self) -> None:
        """Make `run` return after what it is doing."""
        self.stopping = True
        self.final_output_queue.wake()
