"""The OpenAI-style bodies: reading them into engine requests, and writing the answers."""

from __future__ import annotations

import base64
import time
from array import array
from typing import Any, Literal

import msgspec

from engine_core.errors import RequestError
from engine_core.messages import EngineCoreOutput, TokenLogprobs


class EmbeddingBody(msgspec.Struct, kw_only=True):
    """Body of /v1/embeddings. `task` "token_embed" asks for one row per token instead of a pooled one."""

    input: Any
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    truncate_prompt_tokens: int | None = None
    task: Literal["embed", "token_embed"] = "embed"


class CompletionBody(msgspec.Struct, kw_only=True):
    """Body of /v1/completions."""

    prompt: Any
    model: str | None = None
    max_tokens: int = 16
    temperature: float = 0.0
    n: int = 1
    seed: int | None = None
    stop: str | list[str] | None = None
    logprobs: int | None = None
    stream: bool = False
    echo: bool = False
    ignore_eos: bool = False
    truncate_prompt_tokens: int | None = None


_DECODERS = {kind: msgspec.json.Decoder(kind) for kind in (EmbeddingBody, CompletionBody)}


def read_embedding_body(body: bytes) -> EmbeddingBody:
    """Errors: RequestError when it is not valid."""
    parsed: EmbeddingBody = _read(body, EmbeddingBody)
    if parsed.dimensions is not None and parsed.dimensions < 1:
        raise RequestError("dimensions must be at least 1")
    return parsed


def read_completion_body(body: bytes) -> CompletionBody:
    """Errors: RequestError when it is not valid."""
    parsed: CompletionBody = _read(body, CompletionBody)
    if parsed.max_tokens < 1 or not 1 <= parsed.n <= 64 or parsed.temperature < 0:
        raise RequestError("max_tokens must be at least 1, n in 1..64 and temperature at least 0")
    return parsed


def _read(body: bytes, kind: Any) -> Any:
    try:
        parsed: Any = _DECODERS[kind].decode(body)
    except msgspec.DecodeError as error:
        raise RequestError(str(error)) from None
    if parsed.truncate_prompt_tokens is not None and parsed.truncate_prompt_tokens < 1:
        raise RequestError("truncate_prompt_tokens must be at least 1")
    return parsed


def split_inputs(value: Any) -> list[str | list[int]]:
    """One string, many, one list of token ids, or many -> a list of prompts. Errors: RequestError."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        if isinstance(value[0], int):
            return [value]
        if all(isinstance(item, str) or (isinstance(item, list) and item) for item in value):
            return value
    raise RequestError("give a string, a list of strings, a list of token ids, or a list of such lists")


def embedding_answer(model: str, body: EmbeddingBody, outputs: list[EngineCoreOutput]) -> bytes:
    """JSON of the answer to /v1/embeddings."""
    tokens = sum(output.num_prompt_tokens for output in outputs)
    data = [
        {"object": "embedding", "index": index, "embedding": _embedding(body, output)}
        for index, output in enumerate(outputs)
    ]
    return msgspec.json.encode(
        {"object": "list", "model": model, "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    )


def _embedding(body: EmbeddingBody, output: EngineCoreOutput) -> Any:
    packed = output.embedding or b""
    if body.encoding_format == "base64":
        return base64.b64encode(packed).decode()
    values = array("f", packed).tolist()
    if body.task == "embed":
        return values
    width = len(values) // output.embedding_rows
    return [values[start : start + width] for start in range(0, len(values), width)]


class Choice:
    """One of a completion's choices while it grows."""

    def __init__(self, index: int, text: str = "") -> None:
        self.index, self.text = index, text
        self.finish_reason: str | None = None
        self.logprobs: list[TokenLogprobs] = []
        self.num_tokens = 0

    def add(self, output: EngineCoreOutput) -> None:
        """Append what the engine sent."""
        self.text += output.text
        self.logprobs += output.logprobs
        self.num_tokens += output.num_new_tokens
        self.finish_reason = output.finish_reason

    def as_json(self) -> dict[str, Any]:
        """In the form of /v1/completions."""
        logprobs = None
        if self.logprobs:
            logprobs = {
                "tokens": [item.token for item in self.logprobs],
                "token_logprobs": [item.logprob for item in self.logprobs],
                "top_logprobs": [item.top for item in self.logprobs],
            }
        return {"index": self.index, "text": self.text, "logprobs": logprobs, "finish_reason": self.finish_reason}


def completion_answer(
    request_id: str, model: str, choices: list[Choice], prompt_tokens: int = 0, usage: bool = True
) -> bytes:
    """JSON of the answer to /v1/completions, or of one streamed chunk without `usage`."""
    answer: dict[str, Any] = {
        "id": request_id,
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice.as_json() for choice in choices],
    }
    if usage:
        generated = sum(choice.num_tokens for choice in choices)
        answer["usage"] = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": prompt_tokens + generated,
        }
    return msgspec.json.encode(answer)


def error_answer(message: str, code: int) -> bytes:
    """JSON of a refusal."""
    return msgspec.json.encode({"error": {"message": message, "type": "invalid_request_error", "code": code}})
