"""The load generator: an HTTP client in a closed loop (`concurrency`) or an open one (`rate`)."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import msgspec

_MAX_IN_FLIGHT = 1000
_WINDOW_SECONDS = 10.0
_RETRY_SECONDS = 0.2
_WORDS = (
    "the",
    "engine",
    "waits",
    "for",
    "a",
    "step",
    "and",
    "block",
    "of",
    "tokens",
    "to",
    "run",
    "while",
    "many",
    "requests",
    "share",
    "one",
    "long",
    "prefix",
)


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """What the clients ask for. Sizes in tokens; `shared_tokens` of each prompt are one of `num_prefixes`.

    `batch` inputs per request; `drop` closes the connection as soon as the stream begins; `giant_tokens`
    is the size of one more request sent after a few others; `remembered` bodies are made once.
    """

    kind: Literal["embed", "token_embed", "generate"] = "embed"
    prompt_tokens: int = 256
    shared_tokens: int = 0
    num_prefixes: int = 8
    batch: int = 1
    max_tokens: int = 64
    logprobs: int | None = None
    temperature: float = 0.8
    stop: tuple[str, ...] = ()
    truncate_prompt_tokens: int | None = None
    concurrency: int = 8
    rate: float = 0.0
    drop: bool = False
    giant_tokens: int = 0
    remembered: int = 0


class _Usage(msgspec.Struct):
    total_tokens: int


class _Answer(msgspec.Struct):
    usage: _Usage


@dataclass(slots=True)
class LoadStats:
    """The last ten seconds: rates per second and latencies in seconds (None before the first answer)."""

    requests_per_second: float
    tokens_per_second: float
    p50_seconds: float | None
    p99_seconds: float | None
    finished: int
    failed: int
    in_flight: int


class LoadGenerator:
    """Sends requests until cancelled. Times are of the monotonic clock."""

    def __init__(self, url: str, profile: LoadProfile, vocab_size: int, seed: int = 0) -> None:
        self.url, self.profile, self.vocab_size = url, profile, vocab_size
        self.random = random.Random(seed)
        self.finished = self.failed = self.in_flight = 0
        self.recent: deque[tuple[float, float, int]] = deque()
        self.started = time.monotonic()
        self.decoder = msgspec.json.Decoder(_Answer)
        self.prefixes = [self._token_ids(profile.shared_tokens) for _ in range(profile.num_prefixes)]
        self.bodies = [self._make_body() for _ in range(profile.remembered)]
        self.session: aiohttp.ClientSession

    async def run(self) -> None:
        """Generate load for ever."""
        self.started = time.monotonic()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None)
        async with aiohttp.ClientSession(
            timeout=timeout, connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4)
        ) as self.session:
            work = (
                [self._open_loop()]
                if self.profile.rate
                else [self._closed_loop() for _ in range(self.profile.concurrency)]
            )
            if self.profile.giant_tokens:
                work.append(self._giant())
            await asyncio.gather(*work)

    async def _closed_loop(self) -> None:
        while True:
            await (self._drop() if self.profile.drop else self._request())

    async def _open_loop(self) -> None:
        tasks: set[asyncio.Task[None]] = set()
        while True:
            if self.in_flight < _MAX_IN_FLIGHT:
                task = asyncio.ensure_future(self._request())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.sleep(self.random.expovariate(self.profile.rate))

    async def _giant(self) -> None:
        """One request of `giant_tokens`, once the others have shown a working engine."""
        while self.finished < 2 * self.profile.concurrency:
            await asyncio.sleep(0.05)
        await self._request(self._make_body(self.profile.giant_tokens))

    async def _request(self, body: bytes | None = None) -> None:
        started = time.monotonic()
        self.in_flight += 1
        try:
            async with self.session.post(self.url + self._path(), data=body or self._body()) as response:
                answer = await response.read()
                if response.status != 200:
                    raise aiohttp.ClientError(f"status {response.status}")
            now = time.monotonic()
            self.finished += 1
            self.recent.append((now, now - started, self.decoder.decode(answer).usage.total_tokens))
        except (aiohttp.ClientError, OSError, msgspec.DecodeError):
            self.failed += 1
            await asyncio.sleep(_RETRY_SECONDS)
        finally:
            self.in_flight -= 1

    async def _drop(self) -> None:
        """Send a request for a stream and close the connection as soon as the server has taken it."""
        address, body = urlsplit(self.url), self._body()
        head = f"POST {self._path()} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(head.encode() + body)
            await writer.drain()
            await reader.readuntil(b"\r\n\r\n")
            writer.close()
            self.finished += 1
        except (OSError, EOFError, asyncio.LimitOverrunError):
            self.failed += 1
            await asyncio.sleep(_RETRY_SECONDS)

    def _path(self) -> str:
        return "/v1/completions" if self.profile.kind == "generate" else "/v1/embeddings"

    def _body(self) -> bytes:
        return self.random.choice(self.bodies) if self.bodies else self._make_body()

    def _make_body(self, prompt_tokens: int = 0) -> bytes:
        profile = self.profile
        prompts = [self._prompt(prompt_tokens or profile.prompt_tokens) for _ in range(profile.batch)]
        body: dict[str, Any] = {"input": prompts, "encoding_format": "base64", "task": profile.kind}
        if profile.kind == "generate":
            body = {
                "prompt": prompts,
                "max_tokens": profile.max_tokens,
                "ignore_eos": True,
                "stop": profile.stop,
                "logprobs": profile.logprobs,
                "temperature": profile.temperature,
                "stream": profile.drop,
                "seed": self.random.randrange(1 << 30),
            }
        body["truncate_prompt_tokens"] = profile.truncate_prompt_tokens
        return msgspec.json.encode(body)

    def _prompt(self, length: int) -> str | list[int]:
        """Plain words, about one token a letter for the byte-level tokenizer; token ids where sizes matter."""
        if length > 512 or self.profile.shared_tokens or self.profile.batch > 1 or self.profile.giant_tokens:
            prefix = self.random.choice(self.prefixes)
            return prefix + self._token_ids(length - len(prefix))
        return " ".join(self.random.choices(_WORDS, k=length // 5))

    def _token_ids(self, length: int) -> list[int]:
        return self.random.choices(range(min(300, self.vocab_size // 2), self.vocab_size), k=length)

    def stats(self) -> LoadStats:
        """Rates and latencies of the last ten seconds."""
        now = time.monotonic()
        while self.recent and self.recent[0][0] < now - _WINDOW_SECONDS:
            self.recent.popleft()
        window = max(0.001, min(_WINDOW_SECONDS, now - self.started))
        latencies = sorted(latency for _, latency, _ in self.recent)
        return LoadStats(
            requests_per_second=len(latencies) / window,
            tokens_per_second=sum(item[2] for item in self.recent) / window,
            p50_seconds=latencies[len(latencies) // 2] if latencies else None,
            p99_seconds=latencies[min(len(latencies) - 1, len(latencies) * 99 // 100)] if latencies else None,
            finished=self.finished,
            failed=self.failed,
            in_flight=self.in_flight,
        )
