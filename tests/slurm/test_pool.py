"""Nodes from the queue as one pool: rows are shared, nodes join later, one is lost in the middle of a row."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness.flows import hosts
from harness.model import RunResult
from harness.report import html_page
from harness.report.exports import summary_json
from harness.run.slurm import queue
from tests.pools import machines, swept, write
from tests.slurm.cluster import Cluster
from tests.slurm.test_queue import environ
from tests.waiting import until

__all__ = ["environ"]

pytestmark = [pytest.mark.slurm, pytest.mark.index]

HOSTS = "{farm: {engine: slurm, nodes: 2, hold: {time: 10m, wait: 2m}}}"


class Sweep:
    """One sweep, during which something happens; `notes`: its messages."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder, self.environ, self.notes = folder, environ, io.StringIO()

    def run(
        self, *, rows: int, steps: int = 64, meanwhile: Callable[[Path], object] = lambda reports: None
    ) -> RunResult:
        matrix = write(self.folder, HOSTS, rows=rows, steps=steps)
        return swept(matrix, self.notes, environ=self.environ, meanwhile=meanwhile)

    def trials(self) -> int:
        return len(list((self.folder / "reports").glob("*/[0-9]*/trials/[!.]*")))


@pytest.fixture
def run(tmp_path: Path, environ: dict[str, str]) -> Sweep:
    return Sweep(tmp_path, environ)


def assert_whole(result: RunResult, *, rows: int) -> None:
    """Check that nothing is lost or counted twice, and that no row was measured on two nodes."""
    assert [len(found) for found in machines(result).values()] == [1] * rows, machines(result)
    assert [len([one for one in cell.trials if one.measured]) for cell in result.cells] == [2] * 2 * rows


def test_rows_are_shared_by_the_nodes_and_found_again_by_the_next_sweep(run: Sweep, cluster: Cluster) -> None:
    result = run.run(rows=3)
    assert_whole(result, rows=3)
    used = set.union(*machines(result).values())
    assert len(used) == 2
    assert used < set(cluster.nodes)
    told = json.loads(summary_json.encoded(result))
    assert {cell["machine"] for cell in told["cells"]} == used
    assert all(f"measured on {node}" in html_page.render(result) for node in used)
    assert cluster.jobs() == []
    again = run.run(rows=3)
    assert machines(again) == machines(result)
    assert run.trials() == 24, "the second sweep took over all trials of the first"
    assert {one.run for cell in again.cells for one in cell.trials} == {result.directory.name}


def test_a_sweep_begins_with_the_nodes_that_there_are_and_others_join(
    run: Sweep, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would wait for the last node, while the first ones are already charged."""
    monkeypatch.setattr(hosts, "GATHER_S", 0.5)
    others = ["sbatch", "--exclusive", "--nodes=2", "--time=5", "--output=/dev/null", "--wrap=sleep 300"]
    job = cluster.slurm(*others).split()[-1]
    assert until(lambda: "R" in cluster.slurm("squeue", "--noheader", f"--jobs={job}", "--format=%t"), seconds=10)

    def free(reports: Path) -> None:
        until(lambda: run.trials() >= 2, seconds=30)
        cluster.slurm("scancel", job)

    result = run.run(rows=4, steps=100, meanwhile=free)
    assert_whole(result, rows=4)
    assert "joins the pool" in run.notes.getvalue()
    assert len(set.union(*machines(result).values())) == 2
    assert cluster.jobs() == []


@pytest.mark.kills
def test_a_row_starts_again_on_another_node_if_its_own_is_lost(
    run: Sweep, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "GONE_NODE_S", 1.0)

    def lose(reports: Path) -> None:
        until(lambda: run.trials() >= 2, seconds=30)
        time.sleep(0.3)
        cluster.lose_node(cluster.nodes[0])

    result = run.run(rows=3, steps=100, meanwhile=lose)
    assert_whole(result, rows=3)
    assert "was lost" in run.notes.getvalue()
    assert result.hosts[0].problem is None
    assert cluster.jobs() == []
