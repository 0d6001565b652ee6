"""Runs the command line: the entry point of `harness` and of `python -m harness`."""

import sys


def main() -> None:
    """Run the command line. If memory runs out during its imports, print one line and exit with 3."""
    try:
        from harness.cli import main as run
    except MemoryError:
        print("harness: not enough memory to start; free some and run the same command again", file=sys.stderr)
        sys.exit(3)
    run()


if __name__ == "__main__":
    main()
