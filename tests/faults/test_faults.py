"""What `make nightly` tries at random; with HARNESS_FAULTS=100, each fault a hundred times."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import pools
from tests.faults import fuzz, invocations, kills, sweeps
from tests.nightly import at_night, many
from tests.slurm.cluster import Cluster

TIMES = int(os.environ.get("HARNESS_FAULTS", "0"))
NIGHTLY = at_night("by day, tests of the contract and the integration kill, freeze and cut off once each")


@pytest.mark.parametrize("kind", fuzz.CASES)
def test_damaged_input_is_an_error_of_one_line(kind: str) -> None:
    with fuzz.CASES[kind]() as case:
        assert fuzz.campaign(kind, case, times=TIMES or many(40, 2000)) == 0


def test_no_invocation_ends_in_a_traceback(tmp_path: Path) -> None:
    """Paths that could not be looked at ended eleven commands in one, and stdout was blamed for two."""
    command = invocations.command_of(tmp_path, seed=0, times=TIMES or many(200, 20_000))
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    for folder, _, _ in os.walk(tmp_path):  # pytest removes it
        Path(folder).chmod(0o755)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def campaign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sweeps.Campaign]:
    with sweeps.own_engine(request.param) as engine:
        yield sweeps.Campaign.prepared(Path(tmp_path_factory.mktemp("faults")), engine)


MARKS = {"process": [], "docker": [pytest.mark.docker], "slurm": [pytest.mark.slurm]}
FAULTS = [
    pytest.param(engine, fault, marks=MARKS[engine]) for engine, faults in sweeps.ON_ENGINES.items() for fault in faults
]


@NIGHTLY
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("campaign", "fault"), FAULTS, indirect=["campaign"])
def test_a_fault_loses_doubles_and_leaves_nothing(campaign: sweeps.Campaign, fault: str) -> None:
    chance = random.Random(fault)
    assert [problem for _ in range(TIMES or 3) for problem in campaign.once(fault, chance).problems] == []


@NIGHTLY
@pytest.mark.timeout(3600)
@pytest.mark.docker
def test_kills_on_a_pool_lose_double_and_leave_nothing() -> None:
    with pools.engines(3, kills.BASE) as machines:
        assert kills.on_engines(machines, kills=TIMES or 5) == 0


@NIGHTLY
@pytest.mark.timeout(3600)
@pytest.mark.slurm
def test_kills_on_a_cluster_lose_double_and_leave_nothing(cluster: Cluster) -> None:
    assert kills.on_cluster(cluster, kills=TIMES or 5) == 0
