"""The model against its own full recomputation, and against transformers."""

from __future__ import annotations

from dataclasses import replace

import torch

from engine_core.config import EngineConfig
from engine_core.kv_cache import KVCacheManager
from engine_core.messages import EngineCoreRequest
from engine_core.model import ModelRunner
from engine_core.registry import MODELS, resolve_model
from engine_core.scheduler import Request, Scheduler
from engine_core.tokenizer import PythonTokenizer, build_byte_tokenizer
from engine_core.weights import Model, named_targets


def make_engine(**options: object) -> tuple[Scheduler, ModelRunner]:
    config = EngineConfig(**{"model": "qwen3-tiny", "max_num_batched_tokens": 24, **options})  # type: ignore[arg-type]
    resolve_model(config)
    runner = ModelRunner(config)
    runner.load_weights()
    cache = KVCacheManager(runner.num_blocks, config.block_size, config.enable_prefix_caching)
    return Scheduler(config, cache, eos_token_id=-1), runner


def generate(scheduler: Scheduler, runner: ModelRunner, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    requests = []
    for index, prompt in enumerate(prompts):
        header = EngineCoreRequest(request_id=str(index), task="generate", max_tokens=max_tokens)
        requests.append(Request(header, list(prompt), []))
        scheduler.add_request(requests[-1])
    while scheduler.has_requests():
        output = scheduler.schedule()
        scheduler.update_from_output(output, runner.execute_model(output).sampled_token_ids)
    return [request.token_ids[request.num_prompt_tokens :] for request in requests]


def test_decoding_with_the_kv_cache_equals_full_recomputation() -> None:
    generator = torch.Generator().manual_seed(3)
    prompts = [torch.randint(0, 4096, (length,), generator=generator).tolist() for length in (5, 40, 17, 1)]
    expected = []
    for prompt in prompts:
        tokens = list(prompt)
        for _ in range(12):
            scheduler, runner = make_engine(enable_prefix_caching=False, max_num_batched_tokens=256)
            tokens += generate(scheduler, runner, [tokens], 1)[0]
        expected.append(tokens[len(prompt) :])
    assert generate(*make_engine(), prompts, 12) == expected
    few_blocks = make_engine(num_gpu_blocks_override=6)
    assert generate(*few_blocks, prompts, 12) == expected
    assert few_blocks[0].num_preemptions > 0


def test_the_small_decoder_equals_transformers() -> None:
    spec = MODELS["qwen3-tiny"]
    small, reference = Model(replace(spec)), Model(replace(spec, use_transformers=True))
    runner = ModelRunner(EngineConfig(model="qwen3-tiny", spec=spec))
    runner.load_weights()
    small = runner.model
    owners = named_targets(reference)
    for name, (owner, attribute) in named_targets(small).items():
        setattr(owners[name][0], owners[name][1], getattr(owner, attribute))
    scheduler = Scheduler(runner.config, KVCacheManager(runner.num_blocks, 16, False), -1)
    request = Request(EngineCoreRequest(request_id="a", task="embed", pool="mean"), list(range(300, 337)), [])
    scheduler.add_request(request)
    output = scheduler.schedule()
    ours = runner.execute_model(output).hidden_states["a"]
    runner.model = reference.eval()
    theirs = runner.execute_model(output).hidden_states["a"]
    assert torch.allclose(ours, theirs, atol=1e-4)


def test_python_tokenizer_decodes_like_the_compiled_one() -> None:
    tokenizer = build_byte_tokenizer(4096)
    token_ids = [*tokenizer.encode("naïve – déjà vu\n").ids, 300, 4000, 1234]
    assert PythonTokenizer(tokenizer).decode(token_ids) == tokenizer.decode(token_ids)
    assert PythonTokenizer(tokenizer).find_first("abcabd", ("bd", "abd")) == 3
