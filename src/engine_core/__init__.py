"""The bundled miniature LLM engine: two processes, three engine threads, vLLM's nouns.

`python -m engine_core` starts the front end and the engine core, drives load and can bring about
faults; `python -m engine_core.frontend` starts the server alone.
"""

__all__: list[str] = []
