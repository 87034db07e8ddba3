"""The engine's options, with vLLM's names, in one dataclass that travels from front end to core."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass, field
from typing import Literal

from engine_core.errors import UsageError

Architecture = Literal["qwen3", "bert"]
Task = Literal["embed", "generate"]


@dataclass(slots=True)
class ModelSpec:
    """Sizes of one model and where its weights can be found.

    `repo` is its name on the hub, `package` the Python package that carries its weights,
    `directory` the folder they were found in ("" when the weights are random).
    """

    name: str
    architecture: Architecture
    task: Task
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    pooling: Literal["last", "mean"] = "last"
    rope_theta: float = 1e6
    tie_word_embeddings: bool = False
    max_position_embeddings: int = 32768
    use_transformers: bool = False
    dtype: Literal["float32", "bfloat16"] = "float32"
    repo: str = ""
    package: str = ""
    directory: str = ""

    @property
    def weights(self) -> Literal["real", "random"]:
        """Whether the weights come from files or are made up."""
        return "real" if self.directory else "random"


@dataclass(slots=True)
class EngineConfig:
    """All options of the engine core and its front end. Sizes in tokens unless the name says otherwise."""

    model: str = "qwen3-embedding-tiny"
    weights: Literal["auto", "real", "random"] = "auto"
    max_model_len: int = 2048
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 1024
    block_size: int = 16
    num_gpu_blocks_override: int = 0
    kv_cache_memory_bytes: int = 256 << 20
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    scheduling_policy: Literal["fcfs", "longest-prefix"] = "fcfs"
    worker_use_thread: bool = False
    ipc_hwm: int = 0
    queue_size: int = 0
    output_queue_size: int = 0
    shm_results: bool = False
    shm_threshold_bytes: int = 64 << 10
    max_logprobs: int = 64
    slow_tokenizer: bool = False
    log_steps: bool = False
    torch_threads: int = 0
    seed: int = 0
    hf_overrides: dict[str, int] = field(default_factory=dict)
    warm_up_max_tokens: int = 0
    weights_stream: str = ""
    run_dir: str = ""
    faults: list[str] = field(default_factory=list)
    spec: ModelSpec | None = None

    @property
    def input_address(self) -> str:
        """ZMQ address of the requests' socket, bound by the front end."""
        return f"ipc://{self.run_dir}/input"

    @property
    def output_address(self) -> str:
        """ZMQ address of the results' socket, bound by the front end."""
        return f"ipc://{self.run_dir}/output"

    @property
    def model_spec(self) -> ModelSpec:
        """The resolved model; UsageError before `registry.resolve_model` has filled it in."""
        if self.spec is None:
            raise UsageError("the model has not been resolved")
        return self.spec

    @property
    def warm_up_sizes(self) -> list[int]:
        """Batch sizes that are run before the engine is ready: a few, or all up to `warm_up_max_tokens`."""
        return list(range(1, self.warm_up_max_tokens + 1)) or [1, 16, 64]

    def resolved_torch_threads(self) -> int:
        """Threads of torch's pool: as asked, else half the cores of this process, four at most."""
        return self.torch_threads or max(1, min(4, len(os.sched_getaffinity(0)) // 2))


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every engine option a user may set; names and meanings follow vLLM."""
    default = EngineConfig()
    parser.add_argument("--model", default=default.model, help="name of a bundled model, or a directory")
    parser.add_argument("--weights", choices=("auto", "real", "random"), default=default.weights)
    for name in (
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "block_size",
        "num_gpu_blocks_override",
        "ipc_hwm",
        "queue_size",
        "output_queue_size",
        "max_logprobs",
        "warm_up_max_tokens",
        "torch_threads",
        "seed",
    ):
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=getattr(default, name), metavar="N")
    parser.add_argument("--scheduling-policy", choices=("fcfs", "longest-prefix"), default=default.scheduling_policy)
    for name in (
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "worker_use_thread",
        "shm_results",
        "log_steps",
        "slow_tokenizer",
    ):
        parser.add_argument(
            "--" + name.replace("_", "-"), action=argparse.BooleanOptionalAction, default=getattr(default, name)
        )
    parser.add_argument(
        "--hf-overrides", type=json.loads, default={}, metavar="JSON", help="sizes to change in the model"
    )
    parser.add_argument("--weights-stream", default="", metavar="PATH", help="safetensors file or pipe to read instead")
    parser.add_argument(
        "--fault",
        dest="faults",
        action="append",
        default=[],
        metavar="NAME",
        help="bring about a fault; --list-faults of `python -m engine_core` shows them",
    )
    parser.add_argument("--run-dir", default="", help="directory of the ipc sockets (default: a temporary one)")


def config_from_arguments(arguments: argparse.Namespace) -> EngineConfig:
    """Build the configuration from parsed arguments; UsageError when a number makes no sense."""
    names = set(EngineConfig.__dataclass_fields__)
    config = EngineConfig(**{key: value for key, value in vars(arguments).items() if key in names})
    for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size"):
        if getattr(config, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1")
    return config


def config_to_arguments(config: EngineConfig) -> list[str]:
    """The command line that `add_engine_arguments` reads back as this configuration."""
    default = EngineConfig()
    arguments: list[str] = []
    for name in EngineConfig.__dataclass_fields__:
        value, flag = getattr(config, name), "--" + name.replace("_", "-")
        if name in ("spec", "kv_cache_memory_bytes", "shm_threshold_bytes") or value == getattr(default, name):
            continue
        if name == "faults":
            arguments += [part for fault in value for part in ("--fault", fault)]
        elif isinstance(value, bool):
            arguments.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            arguments += [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
    return arguments
