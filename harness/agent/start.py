"""Starts the agent: `python -B ROOT/start.py` is the supervisor, which starts the scenario process in the same way.

ROOT is on sys.path only while the agent's own modules are imported, so that they shadow nothing that the scenario
imports.
"""

import os
import sys


def import_entry(root):
    """Return the agent's module `entry`."""
    sys.path.insert(0, root)
    try:
        from harness_agent import entry
    finally:
        # The interpreter put the folder of this file there too (as a relative path before 3.9).
        sys.path[:] = [place for place in sys.path if os.path.abspath(place) != root]
    return entry


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.exit(import_entry(here).main(here, sys.argv[1:]))
