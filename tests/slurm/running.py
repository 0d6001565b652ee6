"""A cluster for the tests of one process, started by the first of them that needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.numbering import free_number
from tests.slurm.cluster import Cluster, ClusterError

FOLDER = Path("/var/tmp/harness-test-slurm")
MOST_CLUSTERS = 20


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Yield three nodes that nothing else uses; skip, with the reason, if they cannot be started."""
    taken = ClusterError(f"{MOST_CLUSTERS} test processes have a cluster each on this machine")
    with free_number(FOLDER, most=MOST_CLUSTERS, taken=taken) as number:
        found = Cluster(folder=FOLDER / str(number), number=number)
        try:
            found.stop()  # what a killed test run left
            found.start()
            yield found
        except ClusterError as error:
            if os.environ.get("HARNESS_REQUIRE_SLURM") == "1":
                raise
            pytest.skip(str(error))
        finally:
            found.stop()
