"""The scheduler and the KV cache, without a model: tokens are made up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine_core.config import EngineConfig
from engine_core.kv_cache import KVCacheManager, hash_request_tokens
from engine_core.messages import EngineCoreRequest
from engine_core.scheduler import Request, Scheduler, SchedulerOutput

BLOCK = 4


def make_scheduler(num_blocks: int = 64, **options: Any) -> Scheduler:
    settings = {"max_num_batched_tokens": 16, "max_num_seqs": 4, "block_size": BLOCK, "max_model_len": 256, **options}
    config = EngineConfig(**settings)
    return Scheduler(config, KVCacheManager(num_blocks, BLOCK, config.enable_prefix_caching), eos_token_id=99)


def add(scheduler: Scheduler, name: str, prompt: Sequence[int], **params: Any) -> Request:
    header = EngineCoreRequest(request_id=name, **{"task": "generate", "max_tokens": 4, **params})
    request = Request(header, list(prompt), hash_request_tokens(list(prompt), BLOCK))
    scheduler.add_request(request)
    return request


def run_step(scheduler: Scheduler, token: int = 1) -> SchedulerOutput:
    """One step in which every completed request samples `token`."""
    output = scheduler.schedule()
    scheduler.update_from_output(
        output,
        {
            item.request.request_id: token
            for item in output.scheduled
            if item.completes and item.request.task == "generate"
        },
    )
    return output


def shares(output: SchedulerOutput) -> dict[str, int]:
    return {item.request.request_id: item.num_tokens for item in output.scheduled}


def test_the_token_budget_is_shared_in_order_of_arrival() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", range(10))
    add(scheduler, "b", range(100, 110))
    assert shares(run_step(scheduler)) == {"a": 10, "b": 6}
    assert shares(run_step(scheduler)) == {"a": 1, "b": 4}


def test_without_chunked_prefill_a_prompt_waits_for_a_whole_budget() -> None:
    scheduler = make_scheduler(enable_chunked_prefill=False)
    add(scheduler, "a", range(10))
    add(scheduler, "b", range(100, 110))
    assert shares(run_step(scheduler)) == {"a": 10}
    assert shares(run_step(scheduler)) == {"a": 1, "b": 10}


def test_no_more_requests_run_than_max_num_seqs() -> None:
    scheduler = make_scheduler(max_num_seqs=2)
    for name in "abc":
        add(scheduler, name, [1, 2, 3])
    run_step(scheduler)
    assert (len(scheduler.running), len(scheduler.waiting)) == (2, 1)


def test_requests_end_by_length_and_by_the_end_token() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", [1, 2, 3], max_tokens=2)
    run_step(scheduler)
    output = scheduler.schedule()
    assert [step.finish_reason for step in scheduler.update_from_output(output, {"a": 5})] == ["length"]
    add(scheduler, "b", [1, 2, 3])
    output = scheduler.schedule()
    assert [step.finish_reason for step in scheduler.update_from_output(output, {"b": 99})] == ["stop"]
    assert scheduler.kv_cache.usage == 0
    assert not scheduler.has_requests()


def test_full_blocks_of_a_prefix_are_reused() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", range(10), task="embed")
    run_step(scheduler)
    again = add(scheduler, "b", [*range(8), 50, 51, 52], task="embed")
    assert shares(scheduler.schedule()) == {"b": 3}
    assert again.num_cached_tokens == 8


def test_the_last_token_is_always_computed() -> None:
    scheduler = make_scheduler()
    add(scheduler, "a", range(8), task="embed")
    run_step(scheduler)
    add(scheduler, "b", range(8), task="embed")
    assert shares(scheduler.schedule()) == {"b": 4}


def test_preemption_frees_the_latest_request_and_computes_it_again() -> None:
    scheduler = make_scheduler(num_blocks=5)
    first, second = add(scheduler, "a", range(8), max_tokens=8), add(scheduler, "b", range(50, 58), max_tokens=8)
    run_step(scheduler)
    assert scheduler.schedule().num_preempted == 1
    assert (first.num_preemptions, second.num_preemptions) == (0, 1)
    assert scheduler.waiting[0] is second
    assert second.num_computed_tokens == 0
    for _ in range(40):
        run_step(scheduler)
    assert not scheduler.has_requests()
    assert (first.num_output_tokens, second.num_output_tokens) == (8, 8)
    assert scheduler.kv_cache.usage == 0


def test_abort_frees_waiting_and_running_requests() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    add(scheduler, "a", range(10))
    add(scheduler, "b", range(10))
    run_step(scheduler)
    assert [request.request_id for request in scheduler.abort_requests(["a", "b", "unknown"])] == ["a", "b"]
    assert scheduler.kv_cache.usage == 0
    assert not scheduler.has_requests()


def test_a_request_larger_than_the_pool_blocks_the_queue() -> None:
    scheduler = make_scheduler(num_blocks=4)
    add(scheduler, "giant", range(40))
    add(scheduler, "small", [1, 2])
    assert run_step(scheduler).scheduled == []
    assert len(scheduler.waiting) == 2


def test_longest_prefix_goes_first() -> None:
    scheduler = make_scheduler(scheduling_policy="longest-prefix", max_num_seqs=1)
    add(scheduler, "a", range(8), task="embed")
    run_step(scheduler)
    add(scheduler, "stranger", range(70, 78), task="embed")
    add(scheduler, "friend", [*range(8), 60], task="embed")
    assert list(shares(scheduler.schedule())) == ["friend"]


def test_evicted_blocks_are_not_found_any_more() -> None:
    cache = KVCacheManager(2, BLOCK, enable_caching=True)
    header = EngineCoreRequest(request_id="a", task="embed")
    first = Request(header, list(range(8)), hash_request_tokens(list(range(8)), BLOCK))
    assert cache.allocate_slots(first, 8)
    first.num_computed_tokens = 8
    cache.cache_full_blocks(first)
    cache.free(first)
    other = Request(header, list(range(20, 28)), hash_request_tokens(list(range(20, 28)), BLOCK))
    assert cache.allocate_slots(other, 8)
    assert cache.get_computed_blocks(first) == []
    assert not cache.allocate_slots(first, 1)


@pytest.mark.parametrize("length", [3, 4, 9])
def test_block_hashes_depend_on_everything_before(length: int) -> None:
    tokens = list(range(length))
    hashes = hash_request_tokens(tokens, BLOCK)
    assert len(hashes) == length // BLOCK
    assert hash_request_tokens([7, *tokens[1:]], BLOCK) != hashes or not hashes
    assert hash_request_tokens(tokens, BLOCK, hashes[:1]) == hashes
