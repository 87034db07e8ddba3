"""The model runner: weights, KV cache tensors, and one forward pass per scheduler step."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine_core.attention import AttentionMetadata, PrefillSpan
from engine_core.config import EngineConfig
from engine_core.progress import StartupProgress
from engine_core.scheduler import Request, ScheduledRequest, SchedulerOutput
from engine_core.weights import Model, init_random_weights, load_tensors


@dataclass(slots=True)
class ModelRunnerOutput:
    """What a step produced, by request id.

    `sampled_token_ids`: the next token where a prompt or decode step was completed. `logits`:
    (vocabulary,) rows for requests that asked for logprobs. `hidden_states`: (rows, hidden) of
    embedding requests: this chunk's rows, or the last one alone where only that is pooled.
    """

    sampled_token_ids: dict[str, int] = field(default_factory=dict)
    logits: dict[str, Tensor] = field(default_factory=dict)
    hidden_states: dict[str, Tensor] = field(default_factory=dict)


@dataclass(slots=True)
class ModelInputs:
    """A flat batch: `input_ids` (tokens,) and the metadata of its attention."""

    input_ids: Tensor
    metadata: AttentionMetadata


class ModelRunner:
    """Owns the model and its KV cache on one device; used by one thread at a time."""

    def __init__(self, config: EngineConfig) -> None:
        self.config, self.spec = config, config.model_spec
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.set_num_threads(config.resolved_torch_threads())
        self.model: Model
        self.kv_cache: list[tuple[Tensor, Tensor]] = []
        self.generators: dict[str, torch.Generator] = {}
        self.num_blocks = self._count_blocks()

    def _count_blocks(self) -> int:
        """KV blocks the pool holds: as overridden, else what fits `kv_cache_memory_bytes`, 2048 at most."""
        spec = self.spec
        size = 2 if spec.dtype == "bfloat16" else 4
        token_bytes = 2 * spec.num_hidden_layers * spec.num_key_value_heads * spec.head_dim * size
        fitting = self.config.kv_cache_memory_bytes // (token_bytes * self.config.block_size)
        return self.config.num_gpu_blocks_override or max(2, min(2048, fitting))

    @torch.inference_mode()
    def load_weights(self) -> None:
        """Build the model and fill its parameters; says in one loud line when they are random.

        Errors: UsageError when files are malformed or incomplete.
        """
        if self.spec.use_transformers:
            print(f"engine_core: building {self.spec.name} with transformers", file=sys.stderr, flush=True)
        self.model = Model(self.spec)
        if self.spec.directory or self.config.weights_stream:
            load_tensors(self.model, self.spec, self.config.weights_stream)
        else:
            print(
                f"engine_core: WEIGHTS ARE RANDOM for {self.spec.name}: outputs have no meaning, only their timing.",
                file=sys.stderr,
                flush=True,
            )
            init_random_weights(self.model, self.spec, self.config.seed)
        self.model = self.model.to(self.device).eval()
        self._allocate_kv_cache()

    def _allocate_kv_cache(self) -> None:
        spec = self.spec
        if spec.architecture == "bert":
            return
        shape = (self.num_blocks * self.config.block_size, spec.num_key_value_heads, spec.head_dim)
        dtype = getattr(torch, spec.dtype)
        for _ in range(spec.num_hidden_layers):
            self.kv_cache.append(
                (
                    torch.zeros(shape, dtype=dtype, device=self.device),
                    torch.zeros(shape, dtype=dtype, device=self.device),
                )
            )

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Run one forward per size of `warm_up_sizes` (tokens), so that first requests meet warm kernels."""
        slots = self.num_blocks * self.config.block_size
        sizes = [
            min(size, self.config.max_num_batched_tokens, slots, self.config.max_model_len)
            for size in self.config.warm_up_sizes
        ]
        with StartupProgress("warming up", sum(sizes)) as progress:
            for size in sizes:
                positions = torch.arange(size, device=self.device)
                metadata = AttentionMetadata(
                    positions, positions, self.kv_cache, [PrefillSpan(0, size, positions, None)]
                )
                self._model_forward(ModelInputs(torch.zeros_like(positions), metadata))
                self._wait_for_device()
                progress.advance(size)

    @torch.inference_mode()
    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        """Run one step: every scheduled request's next tokens in one flat batch."""
        inputs = self._prepare_inputs(scheduler_output.scheduled)
        hidden = self._model_forward(inputs)
        output = ModelRunnerOutput()
        sampling: list[tuple[ScheduledRequest, int]] = []
        end = 0
        for scheduled in scheduler_output.scheduled:
            start, end = end, end + scheduled.num_tokens
            request = scheduled.request
            if request.task == "generate":
                if scheduled.completes:
                    sampling.append((scheduled, end - 1))
            elif request.needs_all_hidden_states:
                output.hidden_states[request.request_id] = hidden[start:end].clone()
            elif scheduled.completes:
                output.hidden_states[request.request_id] = hidden[end - 1 : end].clone()
        if sampling:
            self._sample(hidden, sampling, output)
        self._wait_for_device()
        return output

    def _prepare_inputs(self, scheduled: list[ScheduledRequest]) -> ModelInputs:
        input_ids: list[int] = []
        positions: list[int] = []
        mapping: list[int] = []
        size = self.config.block_size
        for item in scheduled:
            span = range(item.start, item.start + item.num_tokens)
            input_ids += item.request.token_ids[span.start : span.stop]
            positions += span
            blocks = item.request.blocks
            mapping += [blocks[index // size].block_id * size + index % size for index in span]
        metadata = AttentionMetadata(self._tensor(positions), self._tensor(mapping), self.kv_cache)
        self._add_spans(metadata, scheduled)
        return ModelInputs(self._tensor(input_ids), metadata)

    def _slots(self, requests: list[Request]) -> Tensor:
        """Slots of whole requests from their block tables: (requests, most tokens), padded with slots of block 0."""
        longest = max(len(request.blocks) for request in requests)
        tables = torch.tensor(
            [
                [block.block_id for block in request.blocks] + [0] * (longest - len(request.blocks))
                for request in requests
            ],
            device=self.device,
        )
        offsets = torch.arange(self.config.block_size, device=self.device)
        return (tables[:, :, None] * self.config.block_size + offsets).flatten(1)

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    def _add_spans(self, metadata: AttentionMetadata, scheduled: list[ScheduledRequest]) -> None:
        decodes: list[ScheduledRequest] = []
        rows, end = [], 0
        for item in scheduled:
            start, end = end, end + item.num_tokens
            if item.num_tokens == 1 and item.start > 0:
                rows.append(start)
                decodes.append(item)
                continue
            length, mask = item.start + item.num_tokens, None
            if item.start > 0:
                queries = torch.arange(item.start, length, device=self.device)
                mask = torch.arange(length, device=self.device)[None] <= queries[:, None]
            slots = self._slots([item.request])[0, :length]
            metadata.prefills.append(PrefillSpan(start, end, slots, mask))
        if decodes:
            lengths = self._tensor([item.start + 1 for item in decodes])
            longest = max(item.start + 1 for item in decodes)
            metadata.decode_rows = self._tensor(rows)
            metadata.decode_slots = self._slots([item.request for item in decodes])[:, :longest]
            metadata.decode_mask = (torch.arange(longest, device=self.device)[None] < lengths[:, None])[:, None, None]

    def _model_forward(self, inputs: ModelInputs) -> Tensor:
        """Shapes: `input_ids` (tokens,) -> hidden states (tokens, hidden)."""
        hidden: Tensor = self.model.backbone(inputs.input_ids, inputs.metadata)
        return hidden

    def _sample(self, hidden: Tensor, sampling: list[tuple[ScheduledRequest, int]], output: ModelRunnerOutput) -> None:
        """Pick each request's next token: greedy at temperature 0, else drawn from its own generator."""
        logits = self.model.compute_logits(hidden[[row for _, row in sampling]]).float()
        greedy = logits.argmax(dim=-1).tolist()
        for index, (scheduled, _) in enumerate(sampling):
            request, token = scheduled.request, greedy[index]
            if request.params.temperature > 0:
                token = self._draw(request, logits[index])
            output.sampled_token_ids[request.request_id] = token
            if request.params.logprobs is not None:
                output.logits[request.request_id] = logits[index]

    def _draw(self, request: Request, logits: Tensor) -> int:
        generator = self.generators.get(request.request_id)
        if generator is None:
            generator = torch.Generator(self.device).manual_seed(request.params.seed)
            self.generators[request.request_id] = generator
        probabilities = torch.softmax(logits / request.params.temperature, dim=-1)
        return int(torch.multinomial(probabilities, 1, generator=generator).item())

    def forget(self, request_id: str) -> None:
        """Drop the state kept for a finished request."""
        self.generators.pop(request_id, None)

    def _wait_for_device(self) -> None:
        if self.device.type == "cuda":
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            event.record()
            event.synchronize()
