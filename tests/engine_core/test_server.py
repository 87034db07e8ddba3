"""The HTTP server over a live engine core."""

from __future__ import annotations

import base64
import json
import math
import socket
from array import array
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from .conftest import Server

pytestmark = pytest.mark.live
WaitUntil = Callable[..., Any]


def test_health_and_models(embedder: Server) -> None:
    assert embedder.request("/health") == (200, b"")
    card = json.loads(embedder.request("/v1/models")[1])["data"][0]
    assert card["id"] == "qwen3-embedding-tiny"
    assert card["max_model_len"] == 2048


def test_embeddings_of_text_and_of_token_ids(embedder: Server) -> None:
    answer = embedder.post("/v1/embeddings", input=["one", "two", "one"])
    vectors = [item["embedding"] for item in answer["data"]]
    assert [len(vector) for vector in vectors] == [256, 256, 256]
    assert math.isclose(sum(value * value for value in vectors[0]), 1.0, rel_tol=1e-4)
    assert vectors[0] == pytest.approx(vectors[2], abs=1e-5)
    assert vectors[0] != pytest.approx(vectors[1], abs=1e-2)
    assert answer["usage"]["prompt_tokens"] == 9
    ids = embedder.post("/v1/embeddings", input=[[300, 301], [300, 301, 302]])["data"]
    same = embedder.post("/v1/embeddings", input=[300, 301])["data"]
    assert ids[0]["embedding"] == pytest.approx(same[0]["embedding"], abs=1e-5)


def test_embedding_options(embedder: Server) -> None:
    packed = embedder.post("/v1/embeddings", input="one", encoding_format="base64", dimensions=64)
    values = array("f", base64.b64decode(packed["data"][0]["embedding"]))
    assert len(values) == 64
    assert math.isclose(sum(value * value for value in values), 1.0, rel_tol=1e-4)
    short = embedder.post("/v1/embeddings", input=list(range(300, 400)), truncate_prompt_tokens=8)
    assert short["usage"]["prompt_tokens"] == 8
    rows = embedder.post("/v1/embeddings", input=[300, 301, 302], task="token_embed")["data"][0]["embedding"]
    assert [len(row) for row in rows] == [256, 256, 256]


def test_completion_and_its_log_probabilities(generator: Server) -> None:
    answer = generator.post("/v1/completions", prompt="hello", max_tokens=6, logprobs=3, ignore_eos=True)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "length"
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
    for chosen, top in zip(choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"], strict=True):
        assert chosen == pytest.approx(max(top.values()), abs=1e-5)
    again = generator.post("/v1/completions", prompt="hello", max_tokens=6, ignore_eos=True)
    assert again["choices"][0]["text"] == choice["text"]


def test_several_samples_differ(generator: Server) -> None:
    answer = generator.post(
        "/v1/completions", prompt="hello", max_tokens=8, n=3, temperature=1.0, seed=5, ignore_eos=True
    )
    assert len({choice["text"] for choice in answer["choices"]}) == 3


def test_a_stop_string_ends_the_text_and_frees_the_blocks(generator: Server, wait_until: WaitUntil) -> None:
    text = generator.post("/v1/completions", prompt="again", max_tokens=12, ignore_eos=True)["choices"][0]["text"]
    stop = text[9:14]
    answer = generator.post("/v1/completions", prompt="again", max_tokens=500, stop=[stop], ignore_eos=True)
    choice = answer["choices"][0]
    assert choice["text"] == text[: text.find(stop)]
    assert choice["finish_reason"] == "stop"
    wait_until(lambda: generator.metric("vllm:kv_cache_usage_perc") == 0)


def test_a_stream_says_the_same_as_a_whole_answer(generator: Server) -> None:
    whole = generator.post("/v1/completions", prompt="stream", max_tokens=9, ignore_eos=True)["choices"][0]
    _, raw = generator.request(
        "/v1/completions", {"prompt": "stream", "max_tokens": 9, "ignore_eos": True, "stream": True}
    )
    lines = [line.removeprefix(b"data: ") for line in raw.split(b"\n\n") if line]
    assert lines.pop() == b"[DONE]"
    pieces = [json.loads(line)["choices"][0] for line in lines]
    assert len(pieces) == 9
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    assert [piece["finish_reason"] for piece in pieces] == [None] * 8 + ["length"]


def test_a_client_that_goes_away_aborts_its_request(generator: Server, wait_until: WaitUntil) -> None:
    before = generator.metric("vllm:request_success_total", finished_reason="abort")
    address = urlsplit(generator.url)
    body = json.dumps({"prompt": "x" * 200, "max_tokens": 1700, "ignore_eos": True, "stream": True}).encode()
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=30) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        wait_until(lambda: generator.metric("vllm:kv_cache_usage_perc") > 0)
    wait_until(lambda: generator.metric("vllm:request_success_total", finished_reason="abort") == before + 1)
    wait_until(lambda: generator.metric("vllm:kv_cache_usage_perc") == 0)
    assert generator.metric("vllm:num_requests_running") == 0


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/v1/completions", {"prompt": ""}, "empty"),
        ("/v1/completions", {"prompt": [1, 2, 9999]}, "token ids"),
        ("/v1/completions", {"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ("/v1/completions", {"prompt": "x", "logprobs": 1000}, "logprobs"),
        ("/v1/completions", {"prompt": list(range(256)) * 10}, "context"),
        ("/v1/completions", {"nothing": 1}, "prompt"),
        ("/v1/completions", {"prompt": {"a": 1}}, "string"),
        ("/v1/embeddings", {"input": "x"}, "/v1/completions"),
    ],
)
def test_bad_requests_are_refused_with_the_reason(generator: Server, path: str, body: Any, reason: str) -> None:
    status, answer = generator.request(path, body)
    assert status == 400
    assert reason in json.loads(answer)["error"]["message"]


def test_metrics_have_vllm_names(generator: Server) -> None:
    generator.post("/v1/completions", prompt="count", max_tokens=3, ignore_eos=True)
    labels = {"model_name": "qwen3-tiny", "engine": "0"}
    for name in (
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:iteration_tokens_total_count",
        "vllm:request_queue_time_seconds_count",
        "vllm:time_to_first_token_seconds_count",
        "vllm:e2e_request_latency_seconds_count",
    ):
        assert generator.metric(name, **labels) > 0, name
    assert generator.metric("vllm:request_success_total", finished_reason="length", **labels) > 0
    assert generator.metric("engine_core:model_info", model="qwen3-tiny", weights="random") == 1
    text = generator.request("/metrics")[1].decode()
    for name in (
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:num_preemptions_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
    ):
        assert f"\n{name}{{" in text, name


def test_repeated_prompts_hit_the_prefix_cache(generator: Server) -> None:
    prompt = "the same long beginning of every request " * 3
    generator.post("/v1/completions", prompt=prompt, max_tokens=1)
    before = generator.metric("vllm:prefix_cache_hits_total")
    generator.post("/v1/completions", prompt=prompt, max_tokens=1)
    assert generator.metric("vllm:prefix_cache_hits_total") - before >= 96
