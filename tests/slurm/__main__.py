"""`tools/slurm up | down`: a Slurm of three nodes by hand, to try a matrix with `engine: slurm`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.slurm.cluster import Cluster, ClusterError

FOLDER = Path("/var/tmp/harness-slurm")
NUMBER = 90  # the tests use 1 to 19


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools/slurm", description=__doc__)
    parser.add_argument("do", choices=["up", "down"])
    cluster = Cluster(folder=FOLDER, number=NUMBER)
    do = parser.parse_args().do
    cluster.stop()
    if do == "down":
        return
    try:
        cluster.start()
    except ClusterError as error:
        cluster.stop()
        sys.exit(f"slurm: {error}")
    print(f"nodes {', '.join(cluster.nodes)}; the GPUs that they offer are doubles without a driver", file=sys.stderr)
    print(f"export SLURM_CONF={cluster.conf}")


if __name__ == "__main__":
    main()
