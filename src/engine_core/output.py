"""OutputProcessor: text, stop strings and logprobs of generated tokens; pooled and packed embeddings."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field

import torch
from tokenizers import Tokenizer
from torch import Tensor

from engine_core.config import EngineConfig
from engine_core.ipc import WakeQueue
from engine_core.loop import StepOutputs
from engine_core.messages import AbortRequests, EngineCoreOutput, EngineCoreOutputs, TokenLogprobs
from engine_core.scheduler import Request, RequestStep
from engine_core.tokenizer import PythonTokenizer

_REPLACEMENT = "\ufffd"
_CONTEXT_TOKENS = 6


@dataclass(slots=True)
class RequestState:
    """What has been said of one request so far. Offsets index `token_ids`; `held_text` is not sent yet."""

    request: Request
    token_ids: list[int]
    prefix_offset: int
    read_offset: int
    text: str = ""
    sent: int = 0
    num_new_tokens: int = 0
    chunks: list[Tensor] = field(default_factory=list)
    announced: bool = False


class OutputProcessor:
    """Turns steps into results, on the thread of the same name."""

    def __init__(
        self,
        config: EngineConfig,
        tokenizer: Tokenizer,
        output_queue: queue.Queue[StepOutputs | None],
        final_output_queue: WakeQueue[EngineCoreOutputs],
        input_queue: queue.Queue[Request | AbortRequests | None],
    ) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.output_queue, self.final_output_queue, self.input_queue = output_queue, final_output_queue, input_queue
        self.states: dict[str, RequestState] = {}
        self.python_tokenizer = PythonTokenizer(tokenizer) if config.slow_tokenizer else None

    def run(self) -> None:
        """Serve until a None arrives."""
        while (step_outputs := self.output_queue.get()) is not None:
            self._put_final(self.process_outputs(step_outputs))

    @torch.inference_mode()
    def process_outputs(self, step_outputs: StepOutputs) -> EngineCoreOutputs:
        """One step's results; requests whose stop string was found go back to the engine loop as aborts."""
        outputs = []
        stopped: list[str] = []
        for step in step_outputs.steps:
            request_id = step.request.request_id
            state = self._state(step)
            if state is None:
                continue
            if step.request.task == "generate":
                output = self._generated(state, step, step_outputs.model.logits.get(request_id))
            else:
                output = self._embedded(state, step, step_outputs.model.hidden_states[request_id])
            if output is None:
                continue
            if output.finish_reason is not None:
                del self.states[request_id]
                if step.finish_reason is None:
                    stopped.append(request_id)
            outputs.append(output)
        for request in step_outputs.aborted:
            if self.states.pop(request.request_id, None) is not None or request.num_output_tokens == 0:
                outputs.append(EngineCoreOutput(request_id=request.request_id, finish_reason="abort"))
        if stopped:
            self._finish_stopped(stopped)
        return EngineCoreOutputs(outputs=outputs, stats=step_outputs.stats)

    def _state(self, step: RequestStep) -> RequestState | None:
        """The request's state; None for late news of a request that a stop string has ended."""
        request = step.request
        state = self.states.get(request.request_id)
        if state is None and step.num_output_tokens <= 1:
            prompt = request.token_ids[: request.num_prompt_tokens]
            state = RequestState(request, prompt, max(0, len(prompt) - _CONTEXT_TOKENS), len(prompt))
            self.states[request.request_id] = state
        return state

    def _new_output(self, state: RequestState) -> EngineCoreOutput:
        output = EngineCoreOutput(request_id=state.request.request_id)
        if not state.announced:
            state.announced = True
            request = state.request
            output.num_prompt_tokens = request.num_prompt_tokens
            output.num_cached_tokens = request.num_cached_tokens
            output.queue_seconds = (request.scheduled_first or request.arrived) - request.arrived
        return output

    def _generated(self, state: RequestState, step: RequestStep, logits: Tensor | None) -> EngineCoreOutput | None:
        if step.new_token_id is None:
            return None
        output = self._new_output(state)
        output.num_new_tokens = 1
        output.finish_reason = step.finish_reason  # type: ignore[assignment]
        if logits is not None:
            output.logprobs = [self._compute_logprobs(logits, step.new_token_id, state.request.params.logprobs or 0)]
        state.token_ids.append(step.new_token_id)
        state.text += self.detokenize_incrementally(state)
        stop_at = self.check_stop_strings(state)
        if stop_at is not None:
            state.text, output.finish_reason = state.text[:stop_at], "stop"
        held = 0 if output.finish_reason else max((len(stop) - 1 for stop in state.request.params.stop), default=0)
        until = max(state.sent, len(state.text) - held)
        output.text, state.sent = state.text[state.sent : until], until
        return output

    def detokenize_incrementally(self, state: RequestState) -> str:
        """Text that the newest token adds; "" while a character is incomplete."""
        if self.python_tokenizer is not None:
            return self._detokenize_in_python(self.python_tokenizer, state)
        before, after = self.tokenizer.decode_batch(
            [state.token_ids[state.prefix_offset : state.read_offset], state.token_ids[state.prefix_offset :]]
        )
        if len(after) <= len(before) or after.endswith(_REPLACEMENT):
            return ""
        state.prefix_offset, state.read_offset = state.read_offset, len(state.token_ids)
        added: str = after[len(before) :]
        return added

    def _detokenize_in_python(self, tokenizer: PythonTokenizer, state: RequestState) -> str:
        """The quadratic way: the whole sequence is decoded again for each new token."""
        before = tokenizer.decode(state.token_ids[: state.read_offset])
        after = tokenizer.decode(state.token_ids)
        if len(after) <= len(before) or after.endswith(_REPLACEMENT):
            return ""
        state.read_offset = len(state.token_ids)
        return after[len(before) :]

    def check_stop_strings(self, state: RequestState) -> int | None:
        """Where the first stop string begins in the text, None when there is none."""
        if self.python_tokenizer is not None:
            return self.python_tokenizer.find_first(state.text, state.request.params.stop)
        found = [
            index
            for stop in state.request.params.stop
            if (index := state.text.find(stop, max(0, state.sent - len(stop)))) >= 0
        ]
        return min(found, default=None)

    def _compute_logprobs(self, logits: Tensor, token_id: int, num_logprobs: int) -> TokenLogprobs:
        """Log-probability and rank of the token among (vocabulary,) logits, and the likeliest `num_logprobs`."""
        logprobs = torch.log_softmax(logits, dim=-1)
        chosen = logprobs[token_id]
        rank = int((logprobs > chosen).sum().item()) + 1
        values, indices = logprobs.topk(num_logprobs)
        names = self.tokenizer.decode_batch([[token_id], *([index] for index in indices.tolist())])
        return TokenLogprobs(names[0], float(chosen), rank, dict(zip(names[1:], values.tolist(), strict=True)))

    def _embedded(self, state: RequestState, step: RequestStep, hidden: Tensor) -> EngineCoreOutput | None:
        if step.start == 0:
            state.chunks = []
        state.chunks.append(hidden)
        if step.finish_reason is None:
            return None
        pooled = self.pool(state)
        output = self._new_output(state)
        output.embedding, output.embedding_rows = self.pack(pooled), pooled.shape[0]
        output.finish_reason = "stop"
        return output

    def pool(self, state: RequestState) -> Tensor:
        """Chunks of hidden states -> normalised (rows, dimensions) embedding: one row, or one per token."""
        params = state.request.params
        hidden = torch.cat(state.chunks).float()
        if params.task != "token_embed":
            hidden = hidden.mean(dim=0, keepdim=True) if params.pool == "mean" else hidden[-1:]
        if params.dimensions is not None:
            hidden = hidden[:, : params.dimensions]
        return torch.nn.functional.normalize(hidden, dim=-1)

    def pack(self, pooled: Tensor) -> bytes:
        """(rows, dimensions) -> float32 bytes."""
        packed: bytes = pooled.cpu().contiguous().numpy().tobytes()
        return packed

    def _finish_stopped(self, request_ids: list[str]) -> None:
        """Tell the engine loop that a stop string has ended these requests."""
        self.input_queue.put(AbortRequests(tuple(request_ids)))

    def _put_final(self, outputs: EngineCoreOutputs) -> None:
        """Hand results to IPCLoop; blocks while a bounded queue is full."""
        self.final_output_queue.put(outputs)
