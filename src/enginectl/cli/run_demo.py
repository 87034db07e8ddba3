"""`enginectl run-demo`: the bundled engine under load. It is a program of its own; this verb becomes it."""

from __future__ import annotations

import os
import sys

import typer


def run_demo(context: typer.Context) -> None:
    """Run the bundled engine under load, with or without a fault (--list-faults lists them)."""
    import importlib.util

    from enginectl.errors import UsageError

    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("zmq") is None:
        raise UsageError("the bundled engine needs more packages", fix="pip install 'enginectl[demo]'")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "engine_core", *context.args])
