"""The scheduler: which requests get how many tokens of the next step."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from engine_core.config import EngineConfig, Task
from engine_core.kv_cache import KVCacheBlock, KVCacheManager
from engine_core.messages import EngineCoreRequest


class Request:
    """One request inside the scheduler. `token_ids` is the prompt and what was generated so far."""

    __slots__ = (
        "arrived",
        "block_hashes",
        "blocks",
        "needs_all_hidden_states",
        "num_cached_blocks",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "params",
        "request_id",
        "scheduled_first",
        "task",
        "token_ids",
    )

    def __init__(self, params: EngineCoreRequest, token_ids: list[int], block_hashes: list[bytes]) -> None:
        self.request_id = params.request_id
        self.params = params
        self.task: Task = "generate" if params.task == "generate" else "embed"
        self.needs_all_hidden_states = params.task == "token_embed" or (self.task == "embed" and params.pool == "mean")
        self.token_ids = token_ids
        self.num_prompt_tokens = len(token_ids)
        self.block_hashes = block_hashes
        self.blocks: list[KVCacheBlock] = []
        self.num_computed_tokens = self.num_cached_tokens = self.num_cached_blocks = self.num_preemptions = 0
        self.arrived = time.monotonic()
        self.scheduled_first: float | None = None

    @property
    def num_tokens(self) -> int:
        """Prompt and generated tokens together."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Generated tokens."""
        return len(self.token_ids) - self.num_prompt_tokens


@dataclass(slots=True)
class ScheduledRequest:
    """A request's share of a step: `num_tokens` tokens from position `start` on."""

    request: Request
    start: int
    num_tokens: int

    @property
    def completes(self) -> bool:
        """Whether this share reaches the request's last token, so that the next one can be sampled."""
        return self.start + self.num_tokens == self.request.num_tokens


@dataclass(slots=True)
class SchedulerOutput:
    """One step's batch."""

    scheduled: list[ScheduledRequest] = field(default_factory=list)
    num_preempted: int = 0

    @property
    def total_num_scheduled_tokens(self) -> int:
        """Tokens of the whole batch."""
        return sum(item.num_tokens for item in self.scheduled)


@dataclass(slots=True)
class RequestStep:
    """What one step did for one request, as OutputProcessor needs it."""

    request: Request
    start: int
    num_output_tokens: int
    new_token_id: int | None
    finish_reason: str | None


class Scheduler:
    """Waiting and running queues over a KV pool. Only the engine loop calls it."""

    def __init__(self, config: EngineConfig, kv_cache: KVCacheManager, eos_token_id: int) -> None:
        self.config, self.kv_cache, self.eos_token_id = config, kv_cache, eos_token_id
        self.requests: dict[str, Request] = {}
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.num_preemptions = 0

    def add_request(self, request: Request) -> None:
        """Put a request at the end of the waiting queue."""
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def has_requests(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self.requests)

    def schedule(self) -> SchedulerOutput:
        """Share out the token budget: running requests first, then waiting ones while blocks last."""
        output = SchedulerOutput()
        budget = self._schedule_running(output, self.config.max_num_batched_tokens)
        if not output.num_preempted:
            self._schedule_waiting(output, budget)
        return output

    def _schedule_running(self, output: SchedulerOutput, budget: int) -> int:
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            num_new_tokens = min(request.num_tokens - request.num_computed_tokens, budget)
            while not self.kv_cache.allocate_slots(request, num_new_tokens):
                victim = self.running[-1]
                self._preempt_request(victim, output)
                if victim is request:
                    break
            else:
                output.scheduled.append(ScheduledRequest(request, request.num_computed_tokens, num_new_tokens))
                budget -= num_new_tokens
                index += 1
                continue
            break
        return budget

    def _schedule_waiting(self, output: SchedulerOutput, budget: int) -> None:
        if self.config.scheduling_policy == "longest-prefix":
            self._sort_waiting()
        while self.waiting and budget > 0 and len(self.running) < self.config.max_num_seqs:
            request = self.waiting[0]
            computed = self.kv_cache.get_computed_blocks(request)
            num_cached_tokens = len(computed) * self.kv_cache.block_size
            num_new_tokens = request.num_tokens - num_cached_tokens
            if num_new_tokens > budget:
                if not self.config.enable_chunked_prefill:
                    break
                num_new_tokens = budget
            if not self._fits(request) or not self.kv_cache.allocate_slots(request, num_new_tokens, computed):
                break
            self.waiting.popleft()
            self._start(request, num_cached_tokens)
            output.scheduled.append(ScheduledRequest(request, num_cached_tokens, num_new_tokens))
            budget -= num_new_tokens

    def _fits(self, request: Request) -> bool:
        """Whether the pool could hold the whole request; one that it cannot is never started."""
        return -(-request.num_tokens // self.kv_cache.block_size) <= self.kv_cache.num_blocks

    def _start(self, request: Request, num_cached_tokens: int) -> None:
        request.num_computed_tokens = num_cached_tokens
        request.num_cached_blocks = num_cached_tokens // self.kv_cache.block_size
        if request.scheduled_first is None:
            request.scheduled_first = time.monotonic()
            request.num_cached_tokens = num_cached_tokens
            self.kv_cache.num_queries += request.num_tokens
            self.kv_cache.num_hits += num_cached_tokens
        self.running.append(request)

    def _sort_waiting(self) -> None:
        """Order the waiting queue by the length of the cached prefix, longest first, then by arrival."""
        matches = [
            (-len(self.kv_cache.get_computed_blocks(request)), request.arrived, index)
            for index, request in enumerate(self.waiting)
        ]
        matches.sort()
        requests = list(self.waiting)
        self.waiting = deque(requests[index] for _, _, index in matches)

    def _preempt_request(self, request: Request, output: SchedulerOutput) -> None:
        """Take back a running request's blocks; it waits at the head of the queue to be computed again."""
        self.running.remove(request)
        self.kv_cache.free(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.num_preemptions += 1
        output.num_preempted += 1
        self.waiting.appendleft(request)

    def update_from_output(self, output: SchedulerOutput, sampled: dict[str, int]) -> list[RequestStep]:
        """Apply a step's results: count tokens, append sampled ones, finish and free what is done."""
        steps = []
        for item in output.scheduled:
            request = item.request
            completes = item.completes
            request.num_computed_tokens += item.num_tokens
            self.kv_cache.cache_full_blocks(request)
            if not completes and not request.needs_all_hidden_states:
                continue
            token = sampled.get(request.request_id)
            reason = self._finish_reason(request, token) if completes else None
            if reason is not None:
                self._finish(request)
            steps.append(RequestStep(request, item.start, request.num_output_tokens, token, reason))
        self.running = [request for request in self.running if request.request_id in self.requests]
        return steps

    def _finish_reason(self, request: Request, token: int | None) -> str | None:
        if token is None:
            return "stop"
        request.token_ids.append(token)
        if token == self.eos_token_id and not request.params.ignore_eos:
            return "stop"
        if request.num_output_tokens >= request.params.max_tokens or request.num_tokens >= self.config.max_model_len:
            return "length"
        return None

    def _finish(self, request: Request) -> None:
        del self.requests[request.request_id]
        self.kv_cache.free(request)

    def abort_requests(self, request_ids: list[str]) -> list[Request]:
        """Drop requests wherever they are and free their blocks; unknown ids are skipped."""
        aborted = []
        for request_id in request_ids:
            request = self.requests.get(request_id)
            if request is None:
                continue
            if request in self.running:
                self.running.remove(request)
            else:
                self.waiting.remove(request)
            self._finish(request)
            aborted.append(request)
        return aborted
