"""A user's own script around vLLM's `LLM` class: it generates until it is ended."""

from __future__ import annotations

import sys


def main(model: str) -> None:
    from vllm import LLM, SamplingParams

    llm = LLM(model=model, enforce_eager=True, max_model_len=2048)
    print("ready", flush=True)
    params = SamplingParams(max_tokens=1500, ignore_eos=True)
    while True:
        llm.generate([f"the quick brown fox {n}" for n in range(8)], params, use_tqdm=False)


if __name__ == "__main__":
    main(sys.argv[1])
