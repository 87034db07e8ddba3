"""One verb a file. Imports are lazy, so that `--help` answers at once."""
