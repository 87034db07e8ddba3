"""`python -m enginectl`, and the command's entry point: an interrupt while modules load ends quietly too."""

from __future__ import annotations

import sys


def main() -> None:
    """Load the command line and run it."""
    try:
        from enginectl.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
