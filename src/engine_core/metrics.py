"""The front end's Prometheus metrics, under vLLM's names."""

from __future__ import annotations

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from engine_core.messages import EngineCoreOutput, EngineReady, SchedulerStats

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST
_LABELS = ("model_name", "engine")
_TOKEN_BUCKETS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_SECOND_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80)


class Metrics:
    """Gauges are set from statistics that travel with results, so they stand still when the engine does."""

    def __init__(self, model_name: str) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.values = (model_name, "0")
        self.running = self._gauge("num_requests_running", "Requests in model execution batches.")
        self.waiting = self._gauge("num_requests_waiting", "Requests waiting to be processed.")
        self.kv_usage = self._gauge("kv_cache_usage_perc", "KV-cache usage; 1 means 100 percent.")
        self.preemptions = self._counter("num_preemptions", "Preemptions.")
        self.prompt_tokens = self._counter("prompt_tokens", "Prefill tokens of admitted requests.")
        self.generation_tokens = self._counter("generation_tokens", "Generated tokens.")
        self.prefix_queries = self._counter("prefix_cache_queries", "Tokens looked up in the prefix cache.")
        self.prefix_hits = self._counter("prefix_cache_hits", "Tokens found in the prefix cache.")
        self.iteration_tokens = self._histogram("iteration_tokens_total", "Tokens per engine step.", _TOKEN_BUCKETS)
        self.queue_time = self._histogram("request_queue_time_seconds", "Time spent waiting.", _SECOND_BUCKETS)
        self.first_token = self._histogram("time_to_first_token_seconds", "Time to first token.", _SECOND_BUCKETS)
        self.latency = self._histogram("e2e_request_latency_seconds", "Time of whole requests.", _SECOND_BUCKETS)
        self.success = Counter(
            "vllm:request_success", "Finished requests.", (*_LABELS, "finished_reason"), registry=self.registry
        )
        for reason in ("stop", "length", "abort"):
            self.success.labels(*self.values, reason)
        self.model_info = Gauge(
            "engine_core:model_info",
            "The model, its weights and its device.",
            ("model", "weights", "device"),
            registry=self.registry,
        )
        self.seen_queries = self.seen_hits = 0

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"vllm:{name}", text, _LABELS, registry=self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        counter: Counter = Counter(f"vllm:{name}", text, _LABELS, registry=self.registry).labels(*self.values)
        return counter

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram: Histogram = Histogram(f"vllm:{name}", text, _LABELS, buckets=buckets, registry=self.registry).labels(
            *self.values
        )
        return histogram

    def set_ready(self, ready: EngineReady) -> None:
        """Publish what model runs where."""
        self.model_info.labels(self.values[0], ready.weights, ready.device).set(1)

    def count_stats(self, stats: SchedulerStats) -> None:
        """Take over one step's statistics."""
        self.running.labels(*self.values).set(stats.num_running)
        self.waiting.labels(*self.values).set(stats.num_waiting)
        self.kv_usage.labels(*self.values).set(stats.kv_cache_usage)
        self.preemptions.inc(stats.num_preempted)
        self.prefix_queries.inc(max(0, stats.prefix_cache_queries - self.seen_queries))
        self.prefix_hits.inc(max(0, stats.prefix_cache_hits - self.seen_hits))
        self.seen_queries, self.seen_hits = stats.prefix_cache_queries, stats.prefix_cache_hits
        if stats.num_scheduled_tokens:
            self.iteration_tokens.observe(stats.num_scheduled_tokens)

    def count_output(self, output: EngineCoreOutput, age_seconds: float | None) -> None:
        """Count one request's news; `age_seconds` since its arrival, None when its client has gone."""
        self.generation_tokens.inc(output.num_new_tokens)
        if output.queue_seconds is not None:
            self.prompt_tokens.inc(output.num_prompt_tokens)
            self.queue_time.observe(output.queue_seconds)
            if age_seconds is not None:
                self.first_token.observe(age_seconds)
        if output.finish_reason in ("stop", "length", "abort"):
            self.success.labels(*self.values, output.finish_reason).inc()
            if age_seconds is not None:
                self.latency.observe(age_seconds)

    def render(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return prometheus_client.generate_latest(self.registry)
