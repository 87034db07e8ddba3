"""The command line: verbs, common options, and how errors become one line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from enginectl._version import __version__
from enginectl.cli import doctor, explain, ps, record, rules, run_demo, selftest, top, watch

app = typer.Typer(
    name="enginectl",
    help="Tells what the threads of a live LLM engine do, who waits for whom, and what holds it back.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "ENGINECTL", "help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        print(f"enginectl {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Tells what the threads of a live LLM engine do, who waits for whom, and what holds it back."""


app.command("doctor")(doctor.doctor)
app.command("top")(top.top)
app.command("record")(record.record)
app.command("watch")(watch.watch)
app.command("ps")(ps.ps)
app.command("explain")(explain.explain)
app.command("rules")(rules.rules)
app.command("selftest")(selftest.selftest)
app.command(
    "run-demo", context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)(run_demo.run_demo)


def spread_from(argv: list[str]) -> list[str]:
    """`--from A B C` -> `--from A --from B --from C`: option parsers take one value each."""
    result: list[str] = []
    spreading = False
    for word in argv:
        if word == "--from":
            spreading = True
            continue
        if spreading and (word == "-" or not word.startswith("-")):
            result += ["--from", word]
            continue
        if spreading and result[-2:-1] != ["--from"]:
            result.append("--from")
        spreading = False
        result.append(word)
    return result


def main() -> None:
    """Entry point: every failure is one line on stderr and the exit code of its class."""
    from enginectl.errors import EnginectlError

    verbose = "-v" in sys.argv[1:] or "--verbose" in sys.argv[1:]
    try:
        app(args=spread_from(sys.argv[1:]))
    except EnginectlError as error:
        print(f"enginectl: {error.message}", file=sys.stderr)
        if error.fix:
            print(f"  {error.fix}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if verbose:
            raise
        print(f"enginectl: internal error: {type(error).__name__}: {error} (-v shows where)", file=sys.stderr)
        sys.exit(1)
