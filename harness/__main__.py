"""Runs the command line: the entry point of `harness` and of `python -m harness`."""

import os
import sys


def main() -> None:
    """Run the command line, and end the process with its exit code: 3 after one line if memory runs out during its
    imports.
    """
    try:
        from harness.cli import open_closed_streams, run
    except MemoryError:
        print("harness: not enough memory to start; free some and run the same command again", file=sys.stderr)
        sys.exit(3)
    open_closed_streams()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the equations are small, so more threads would only wait
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
