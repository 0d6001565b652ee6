"""Runs the command line as `python -m harness`."""

import sys

try:
    from harness.cli import main
except MemoryError:
    print("harness: no memory is left to start with; run the same command again", file=sys.stderr)
    sys.exit(3)

main()
