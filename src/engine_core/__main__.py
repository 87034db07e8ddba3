"""`python -m engine_core`: start the engine, drive load, bring about faults; the run-demo program."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys

_NEEDED = (
    "torch",
    "transformers",
    "tokenizers",
    "zmq",
    "msgspec",
    "setproctitle",
    "aiohttp",
    "prometheus_client",
    "filelock",
    "rich",
)


def _count(text: str) -> int:
    """A whole number of at least 1. Errors: ArgumentTypeError."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1 (--no-load sends no requests)")
    return number


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """The program's command line."""
    from engine_core.config import add_engine_arguments

    parser = argparse.ArgumentParser(prog="python -m engine_core", description=__doc__)
    parser.add_argument("--list-faults", action="store_true", help="show the table of faults and end")
    parser.add_argument("--json", action="store_true", help="with --list-faults: as JSON")
    parser.add_argument("--concurrency", type=_count, default=None, metavar="N", help="closed loop of N clients")
    parser.add_argument("--rate", type=float, default=0.0, metavar="R", help="open loop of R requests a second")
    parser.add_argument("--no-load", action="store_true", help="send no requests")
    parser.add_argument("--duration", type=float, default=0.0, metavar="S", help="end after S seconds of readiness")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--json-events", action="store_true", help="one JSON object per line on stdout")
    add_engine_arguments(parser)
    return parser.parse_args(argv)


def list_faults(as_json: bool) -> int:
    """Print the table of faults."""
    from engine_core.faults import fault_rows

    rows = fault_rows()
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        print(f"{row['name']:<22} -> {' or '.join(row['findings'])}\n    {row['description']}")
        if not row["supported"]:
            print(f"    not possible here: {row['reason']}")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"engine_core: {', '.join(missing)} not installed: pip install 'enginectl[demo]'", file=sys.stderr)
        return 2
    arguments = parse_arguments(argv)
    if arguments.list_faults:
        return list_faults(arguments.json)
    from engine_core.demo import run_demo
    from engine_core.errors import EngineCoreError

    try:
        return run_demo(arguments)
    except EngineCoreError as error:
        print(f"engine_core: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
