"""enginectl tells what the threads of a live LLM engine process do, who waits for whom, and what holds it back."""

from __future__ import annotations

__version__ = "0.1.0"
