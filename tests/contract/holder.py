"""Holds the lease of a host until it is killed. `python -m tests.contract.holder ENGINE` prints a line once it holds
it.
"""

from __future__ import annotations

import os
import sys
import time

from tests.players.world import World, quiet


def main() -> None:
    engine = World.open(sys.argv[1], os.environ).engine
    with engine.lease(quiet, lambda: False):
        print("held", flush=True)
        time.sleep(600)


if __name__ == "__main__":
    main()
