"""Building the model's module and filling its parameters: from safetensors files or a stream, or at random."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from engine_core.config import ModelSpec
from engine_core.errors import UsageError
from engine_core.progress import StartupProgress
from engine_core.qwen3 import Qwen3Decoder

_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_CHUNK_BYTES = 1 << 18


class Model(nn.Module):
    """A backbone and, for generation, the head that turns hidden states into logits."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        if spec.use_transformers:
            from engine_core.hf_models import TransformersBert, TransformersQwen3

            self.backbone: nn.Module = (TransformersBert if spec.architecture == "bert" else TransformersQwen3)(spec)
        else:
            with torch.device("meta"):
                self.backbone = Qwen3Decoder(spec)
        self.tied = spec.tie_word_embeddings
        self.lm_head: nn.Linear | None = None
        if spec.task == "generate" and not self.tied:
            with torch.device("meta"):
                self.lm_head = nn.Linear(spec.hidden_size, spec.vocab_size, bias=False)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Shapes: (rows, hidden) -> (rows, vocabulary)."""
        if self.lm_head is not None:
            return self.lm_head(hidden)  # type: ignore[no-any-return]
        core: Any = getattr(self.backbone, "model", self.backbone)
        logits: Tensor = hidden @ core.embed_tokens.weight.T
        return logits


def named_targets(model: Model) -> dict[str, tuple[nn.Module, str]]:
    """Every parameter by the name that checkpoints use, as (owning module, attribute)."""
    targets = {}
    for name, _ in model.named_parameters():
        owner, _, attribute = name.rpartition(".")
        checkpoint_name = name.removeprefix("backbone.").removeprefix("model.")
        targets[checkpoint_name] = (model.get_submodule(owner), attribute)
    return targets


def load_tensors(model: Model, spec: ModelSpec, stream: str) -> None:
    """Fill the model from its directory's safetensors files, or from `stream` when that is named.

    Errors: UsageError when a file is malformed or parameters are missing.
    """
    targets, dtype = named_targets(model), getattr(torch, spec.dtype)
    paths = [Path(stream)] if stream else sorted(Path(spec.directory).glob("*.safetensors"))
    filled = set()
    for path in paths:
        with path.open("rb") as file:
            for name, tensor in read_tensors(file, f"loading weights of {spec.name}"):
                target = targets.get(name := name.removeprefix("model."))
                if target is not None:
                    _set_parameter(*target, tensor.to(dtype))
                    filled.add(name)
    if missing := sorted(set(targets) - filled):
        raise UsageError(f"weights of {spec.name} lack {len(missing)} tensors, first {missing[0]}")


def read_tensors(file: BinaryIO, description: str) -> Iterator[tuple[str, Tensor]]:
    """Read a safetensors file from front to back, so that a pipe will do.

    Errors: UsageError when the header is malformed or the file ends early.
    """
    try:
        header = json.loads(_read_exactly(file, int.from_bytes(_read_exactly(file, 8), "little")))
    except ValueError as error:
        raise UsageError(f"not a safetensors file ({error})") from None
    header.pop("__metadata__", None)
    entries = sorted(header.items(), key=lambda entry: entry[1]["data_offsets"])
    total = max((entry["data_offsets"][1] for _, entry in entries), default=0)
    with StartupProgress(description, total) as progress:
        for name, entry in entries:
            start, end = entry["data_offsets"]
            data = _read_exactly(file, end - start, progress)
            if entry["dtype"] in _DTYPES and data:
                yield name, torch.frombuffer(data, dtype=_DTYPES[entry["dtype"]]).view(entry["shape"])


def _read_exactly(file: BinaryIO, size: int, progress: StartupProgress | None = None) -> bytearray:
    data, done = bytearray(size), 0
    view = memoryview(data)
    while done < size:
        count = os.readv(file.fileno(), [view[done : done + _CHUNK_BYTES]])
        if not count:
            raise ValueError("it ends too early")
        done += count
        if progress is not None:
            progress.advance(count)
    return data


def init_random_weights(model: Model, spec: ModelSpec, seed: int) -> None:
    """Fill the model with random weights, scaled so that outputs vary from token to token."""
    targets, dtype = named_targets(model), getattr(torch, spec.dtype)
    generator = torch.Generator().manual_seed(seed)
    total = sum(getattr(*target).numel() for target in targets.values())
    with StartupProgress(f"making random weights of {spec.name}", total) as progress:
        for name, (owner, attribute) in targets.items():
            shape = getattr(owner, attribute).shape
            tensor = torch.empty(shape, dtype=dtype)
            if len(shape) < 2:
                tensor.fill_(0.0 if attribute == "bias" else 1.0)
            else:
                scale = 1.0 if "embed" in name else 1 / math.sqrt(shape[-1])
                for rows in torch.split(tensor, max(1, (4 << 20) // shape[-1])):
                    rows.normal_(0.0, scale, generator=generator)
                    progress.advance(rows.numel())
            _set_parameter(owner, attribute, tensor)


def _set_parameter(owner: nn.Module, attribute: str, tensor: Tensor) -> None:
    setattr(owner, attribute, nn.Parameter(tensor, requires_grad=False))
