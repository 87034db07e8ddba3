"""The front end: an OpenAI-style HTTP server, the parent of the engine_core process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import socket
import sys
import time
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from engine_core import api
from engine_core.client import EngineClient, PendingRequest
from engine_core.config import EngineConfig, add_engine_arguments, config_from_arguments
from engine_core.errors import EngineCoreError, RequestError, UsageError
from engine_core.messages import EngineCoreOutput, EngineCoreRequest
from engine_core.metrics import CONTENT_TYPE, Metrics
from engine_core.process import die_with_parent
from engine_core.registry import resolve_model
from engine_core.tokenizer import load_tokenizer

_MAX_BODY_BYTES = 256 << 20
_LARGE_BODY_BYTES = 64 << 10
_REMEMBERED_BODIES = 8
KEEP_ALIVE_SECONDS = 5.0
"""As long as the front ends of production engines keep a connection on which nothing is owed."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FrontEnd:
    """Routes of the server; every method runs on the event loop."""

    def __init__(self, client: EngineClient) -> None:
        self.client, self.config = client, client.config
        self.spec = self.config.model_spec
        self.metrics: Metrics = client.metrics
        self.tokenizer = load_tokenizer(self.spec)
        self.remembered: OrderedDict[tuple[int, int], tuple[api.EmbeddingBody, list[bytes]]] = OrderedDict()

    def application(self) -> web.Application:
        """The aiohttp application with all routes."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[refuse_bad_requests])
        app.add_routes(
            [
                web.get("/health", self.health),
                web.get("/metrics", self.show_metrics),
                web.get("/v1/models", self.models),
                web.post("/v1/embeddings", self.embeddings),
                web.post("/v1/completions", self.completions),
            ]
        )
        return app

    async def health(self, _: web.Request) -> web.Response:
        """200 while the server runs, whatever the engine does."""
        return web.Response()

    async def show_metrics(self, _: web.Request) -> web.Response:
        """Prometheus text."""
        return web.Response(body=self.metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    async def models(self, _: web.Request) -> web.Response:
        """The one model served."""
        card = {
            "id": self.spec.name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "engine_core",
            "max_model_len": self.config.max_model_len,
        }
        return web.json_response({"object": "list", "data": [card]})

    async def embeddings(self, request: web.Request) -> web.Response:
        """One embedding per input."""
        if self.spec.task != "embed":
            raise RequestError(f"{self.spec.name} generates text; use /v1/completions")
        body, prompts = self._read_embedding(await request.read())
        header = EngineCoreRequest(
            request_id=_new_id("embd"),
            task=body.task,
            pool=self.spec.pooling,
            dimensions=body.dimensions,
            truncate_prompt_tokens=body.truncate_prompt_tokens,
        )
        outputs = await self._collect(header, prompts)
        return web.Response(body=api.embedding_answer(self.spec.name, body, outputs), content_type="application/json")

    def _read_embedding(self, raw: bytes) -> tuple[api.EmbeddingBody, list[bytes]]:
        """Parse and encode; large bodies seen before are taken from memory."""
        key = (len(raw), zlib.crc32(raw) if len(raw) >= _LARGE_BODY_BYTES else 0)
        if len(raw) >= _LARGE_BODY_BYTES and key in self.remembered:
            return self.remembered[key]
        body = api.read_embedding_body(raw)
        prompts = [self._encode(item, body.truncate_prompt_tokens)[0] for item in api.split_inputs(body.input)]
        body.input = None
        if len(raw) >= _LARGE_BODY_BYTES:
            self.remembered[key] = (body, prompts)
            if len(self.remembered) > _REMEMBERED_BODIES:
                self.remembered.popitem(last=False)
        return body, prompts

    def _encode(self, prompt: str | list[int], truncate: int | None, max_tokens: int = 0) -> tuple[bytes, list[int]]:
        """Tokenise where needed. Errors: RequestError when the prompt is longer than the model's context."""
        token_ids = self.tokenizer.encode(prompt).ids if isinstance(prompt, str) else prompt
        length = min(len(token_ids), truncate or len(token_ids))
        if length + min(max_tokens, 1) > self.config.max_model_len:
            raise RequestError(f"the prompt has {length} tokens, the model's context is {self.config.max_model_len}")
        return self.client.encode_prompt(token_ids), token_ids

    async def _collect(self, header: EngineCoreRequest, prompts: list[bytes]) -> list[EngineCoreOutput]:
        """Send one request per prompt and wait for each one's last output."""
        pending: dict[str, PendingRequest] = {}
        try:
            for index, prompt in enumerate(prompts):
                request_id = f"{header.request_id}-{index}"
                pending[request_id] = await self.client.add_request(_with_id(header, request_id), prompt)
            return [await _last_output(waiting) for waiting in pending.values()]
        finally:
            await self._release(pending)

    async def _release(self, pending: dict[str, PendingRequest]) -> None:
        """Forget finished requests and abort the others, whose client has gone."""
        unfinished = [key for key, waiting in pending.items() if not waiting.finished]
        for request_id in pending:
            self.client.pending.pop(request_id, None)
        if unfinished:
            await self.client.abort(tuple(unfinished))

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Generated text, whole or streamed."""
        if self.spec.task != "generate":
            raise RequestError(f"{self.spec.name} makes embeddings; use /v1/embeddings")
        body = api.read_completion_body(await request.read())
        header = self._completion_header(body)
        pending: dict[str, PendingRequest] = {}
        choices: list[api.Choice] = []
        prompt_tokens = 0
        try:
            for item in api.split_inputs(body.prompt):
                prompt, token_ids = self._encode(item, body.truncate_prompt_tokens, body.max_tokens)
                prompt_tokens += len(token_ids)
                for sample in range(body.n):
                    index = len(choices)
                    choices.append(api.Choice(index, self.tokenizer.decode(token_ids) if body.echo else ""))
                    request_id = f"{header.request_id}-{index}"
                    sent = _with_id(header, request_id, (body.seed or 0) + sample)
                    pending[request_id] = await self.client.add_request(sent, prompt)
            if body.stream:
                return await self._stream(request, header.request_id, list(pending.values()), choices)
            for choice, waiting in zip(choices, pending.values(), strict=True):
                await _fill(choice, waiting)
        finally:
            await self._release(pending)
        answer = api.completion_answer(header.request_id, self.spec.name, choices, prompt_tokens)
        return web.Response(body=answer, content_type="application/json")

    def _completion_header(self, body: api.CompletionBody) -> EngineCoreRequest:
        if body.logprobs is not None and not 0 <= body.logprobs <= self.config.max_logprobs:
            raise RequestError(f"logprobs must be in 0..{self.config.max_logprobs}")
        stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
        return EngineCoreRequest(
            request_id=_new_id("cmpl"),
            task="generate",
            max_tokens=body.max_tokens,
            temperature=body.temperature,
            stop=tuple(item for item in stop if item),
            logprobs=body.logprobs,
            ignore_eos=body.ignore_eos,
            truncate_prompt_tokens=body.truncate_prompt_tokens,
        )

    async def _stream(
        self, request: web.Request, request_id: str, pending: list[PendingRequest], choices: list[api.Choice]
    ) -> web.StreamResponse:
        """Server-sent events: one per piece of news, then [DONE]."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        news: asyncio.Queue[tuple[int, EngineCoreOutput]] = asyncio.Queue()
        tasks = [asyncio.ensure_future(_forward(index, waiting, news)) for index, waiting in enumerate(pending)]
        try:
            remaining = len(tasks)
            while remaining:
                index, output = await news.get()
                piece = api.Choice(index, choices[index].text)
                choices[index].text = ""
                piece.add(output)
                remaining -= output.finish_reason is not None
                chunk = api.completion_answer(request_id, self.spec.name, [piece], usage=False)
                await response.write(b"data: " + chunk + b"\n\n")
            await response.write(b"data: [DONE]\n\n")
            await response.write_eof()
        finally:
            for task in tasks:
                task.cancel()
        return response


@web.middleware
async def refuse_bad_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer 400 with the reason where a handler raises RequestError; nothing to a client that has gone."""
    try:
        return await handler(request)
    except RequestError as error:
        return web.Response(status=400, body=api.error_answer(str(error), 400), content_type="application/json")
    except ConnectionResetError:
        return web.Response()


def _new_id(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:16]}"


def _with_id(header: EngineCoreRequest, request_id: str, seed: int = 0) -> EngineCoreRequest:
    values = {name: getattr(header, name) for name in header.__struct_fields__}
    return EngineCoreRequest(**{**values, "request_id": request_id, "seed": seed})


async def _next_output(pending: PendingRequest) -> EngineCoreOutput:
    output = await pending.outputs.get()
    pending.finished = output.finish_reason is not None
    if output.finish_reason == "error":
        raise RequestError(output.error)
    return output


async def _last_output(pending: PendingRequest) -> EngineCoreOutput:
    while True:
        output = await _next_output(pending)
        if pending.finished:
            return output


async def _fill(choice: api.Choice, pending: PendingRequest) -> None:
    while not pending.finished:
        choice.add(await _next_output(pending))


async def _forward(index: int, pending: PendingRequest, news: asyncio.Queue[tuple[int, EngineCoreOutput]]) -> None:
    while not pending.finished:
        output = await pending.outputs.get()
        pending.finished = output.finish_reason is not None
        news.put_nowait((index, output))


def bind_port(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet. Errors: UsageError when the port cannot be had."""
    server = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((host, port))
    except (OSError, OverflowError) as error:
        server.close()
        raise UsageError(f"cannot listen on {host}:{port}: {error}") from None
    return server


async def serve(
    config: EngineConfig, server: socket.socket, report: Callable[[dict[str, Any]], None], remove_run_dir: bool = False
) -> int:
    """Start the engine core, serve until told to end, and clean up; returns the exit code."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    client = EngineClient(config, remove_run_dir)
    try:
        report({"event": "starting", "engine_pid": client.start_process()})
        if not await _until(stop, client.wait_until_ready()):
            return 0
        if config.faults:
            from engine_core.faults import install_in_front_end

            install_in_front_end(client)
        runner = web.AppRunner(
            FrontEnd(client).application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.1,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
        )
        await runner.setup()
        await web.SockSite(runner, server, backlog=1024).start()
        handler = asyncio.ensure_future(client.output_handler())
        host, port = server.getsockname()[:2]
        assert client.process is not None
        report({"event": "ready", "engine_pid": client.process.pid, "url": f"http://{host}:{port}"})
        code = await _watch(stop, client)
        handler.cancel()
        await runner.cleanup()
        return code
    finally:
        client.close()


async def _until(stop: asyncio.Event, awaitable: Awaitable[Any]) -> bool:
    """Await; False when `stop` is set first."""
    work, stopping = asyncio.ensure_future(awaitable), asyncio.ensure_future(stop.wait())
    await asyncio.wait([work, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not work.done():
        work.cancel()
        return False
    work.result()
    return True


async def _watch(stop: asyncio.Event, client: EngineClient) -> int:
    """Wait for the end: 0 when told to stop, 1 when the engine core has died."""
    while not stop.is_set():
        assert client.process is not None
        if (code := client.process.poll()) is not None:
            print(f"engine_core: the engine core has died (exit status {code})", file=sys.stderr, flush=True)
            return 1
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.2)
    return 0


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """The server's command line."""
    parser = argparse.ArgumentParser(prog="python -m engine_core.frontend", description=__doc__)
    add_engine_arguments(parser)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--json-events", action="store_true", help="one JSON object per line on stdout")
    parser.add_argument("--remove-run-dir", action="store_true", help="remove the whole directory at the end")
    parser.add_argument("--parent-pid", type=int, default=0, help="end when this parent ends")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = parse_arguments(argv)
    if arguments.parent_pid:
        die_with_parent(arguments.parent_pid)

    def report(event: dict[str, Any]) -> None:
        if arguments.json_events:
            print(json.dumps(event), flush=True)
        elif event["event"] == "ready":
            print(f"serving at {event['url']}, engine_core has pid {event['engine_pid']}", flush=True)

    try:
        config = config_from_arguments(arguments)
        server = bind_port(arguments.host, arguments.port)
        resolve_model(config)
        return asyncio.run(serve(config, server, report, arguments.remove_run_dir))
    except EngineCoreError as error:
        print(f"engine_core: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
