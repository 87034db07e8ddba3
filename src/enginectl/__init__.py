"""enginectl tells what the threads of a live LLM engine process do, who waits for whom, and what holds it back.

The library face is `enginectl.api`; the command is `enginectl`.
"""

from enginectl._version import __version__

__all__ = ["__version__"]
