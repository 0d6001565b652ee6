"""A harness to be killed: `python -m tests.contract.victim KIND` prints its run and the agent's pid, then goes on.

On Slurm, where the agent runs on another machine, it prints its own pid.
"""

from __future__ import annotations

import os
import sys

import psutil

from harness.model import Steps
from tests.players.world import World


def main() -> None:
    world = World.open(sys.argv[1], os.environ)

    def tell(step: int, rss_kib: float | None) -> None:
        children = psutil.Process().children()
        agent = os.getpid() if world.kind == "slurm" else children[0].pid if children else 0
        print(world.run_id, agent, flush=True)

    world.trial("slow", steps=Steps(first=50_000, budget=50_000), timeout_s=600.0, on_step=tell)


if __name__ == "__main__":
    main()
