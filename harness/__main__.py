"""Runs the command line: the entry of `harness` and of `python -m harness`."""

import sys


def main() -> None:
    """Run the command line; without memory for its imports, say so in one line."""
    try:
        from harness.cli import main as run
    except MemoryError:
        print("harness: no memory is left to start with; run the same command again", file=sys.stderr)
        sys.exit(3)
    run()


if __name__ == "__main__":
    main()
