"""`python -m enginectl`."""

from enginectl.cli.app import main

main()
