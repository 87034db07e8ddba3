"""The few environment variables that change how an engine runs. No other variable is kept.

Source: `/proc/PID/environ`, the environment at the time of the start.
"""

from __future__ import annotations

import re

from enginectl.observe.redact import MASK, redact_command

_KEPT = re.compile(
    r"(?:VLLM|SGLANG|SGL|NCCL|RCCL|GLOO|UCX|OMP|MKL|KMP|OPENBLAS|TRITON|TORCH|TORCHINDUCTOR|PYTORCH|CUDA|HIP|NVIDIA"
    r"|FLASHINFER|MALLOC|MIMALLOC)_[A-Z0-9_]{1,60}|OMP_NUM_THREADS|LD_PRELOAD|PYTHON(?:HASHSEED|UNBUFFERED|MALLOC|GIL)"
    r"|PYTHONFAULTHANDLER|PYTHONASYNCIODEBUG|TOKENIZERS_PARALLELISM|RANK|LOCAL_RANK|WORLD_SIZE|HF_HUB_OFFLINE"
)
_VALUE = re.compile(r"[\w.,:;+/=@%-]{0,120}")
_PATH = re.compile(r"/[^:\s]*/")
"""Folders in a value (of a preloaded library, of a tool): the name behind them is what matters."""
_PLACES = re.compile(r"_(?:PATH|DIR|ROOT|HOME|CACHE|FILE|URL|URI|HOST|ADDR|IP)$|_(?:API|USAGE|S3|HF)_")
"""Variables that name places: they tell about people and networks, not about the engine."""


def read_environment(pid: int) -> tuple[dict[str, str], int] | None:
    """The kept variables and the count of all; None when they may not be read.

    A variable is kept when its name is on the allow-list and neither name nor value looks like a secret, a place or
    free text; of a path in a value only the last part. Errors: none.
    """
    pairs = _pairs(pid)
    if pairs is None:
        return None
    kept = {name: _PATH.sub("", value) for name, _, value in pairs if _may_stay(name, value)}
    return dict(sorted(kept.items())), len(pairs)


def read_variable(pid: int, name: str) -> str | None:
    """One variable, to act on and not to keep; None when it is not set or may not be read. Errors: none."""
    return next((value for key, _, value in _pairs(pid) or () if key == name), None)


def _pairs(pid: int) -> list[tuple[str, str, str]] | None:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            raw = file.read(1 << 20)
    except OSError:
        return None
    return [part.partition("=") for part in raw.decode("utf-8", "replace").split("\0") if part]


def _may_stay(name: str, value: str) -> bool:
    if not _KEPT.fullmatch(name) or _PLACES.search(name) or not _VALUE.fullmatch(value):
        return False
    return MASK not in redact_command((f"--{name}={value}",))[0][0] and "@" not in value
