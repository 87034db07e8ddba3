"""A KV cache that is too small for the load: requests are preempted and computed again."""

from __future__ import annotations

from collections.abc import Callable

from tests.real_vllm.harness import Engine, decoding, doctor, wait_until


def test_kv_cache_pressure(serve: Callable[..., Engine]) -> None:
    # 18 blocks of 128 tokens: one request of full length fits, eight do not
    with serve("--num-gpu-blocks-override", "18", "--no-enable-prefix-caching") as engine:
        engine.ready()
        with decoding(engine, 8):
            wait_until(lambda: engine.metric("vllm:num_preemptions_total") > 0, 120, "the first preemption")
            report = doctor(engine.pid)
    assert report.finding == "kv-cache-pressure" and report.status == 10, report
    assert not report.unknown_places(), report.unknown_places()
