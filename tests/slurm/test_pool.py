"""Nodes that the queue gives, as one pool: rows are shared, nodes join later, one is lost in the middle of a row."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness.cli.results import write_result
from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts import opening
from harness.flows.sweep import SweepOptions, plan_sweep, sweep
from harness.model import RunResult
from harness.report.exports import summary
from harness.report.page import html_page
from harness.report.terminal.progress import plain_progress
from harness.run.slurm.queue import allocation
from tests.slurm.cluster import Cluster, until
from tests.slurm.test_queue import environ

__all__ = ["environ"]

pytestmark = [pytest.mark.slurm, pytest.mark.index]

SCRIPT = '''"""A step that sleeps."""
import time


def setup(part=0):
    return lambda: time.sleep(0.005)
'''
MATRIX = """\
version: 1
name: pool
series: {{tested: {{install: ["six=={{version}}"], versions: ["1.15.0", "1.16.0"]}}}}
hosts: {{farm: {{engine: slurm, nodes: {nodes}, hold: {{time: 10m, wait: 2m}}}}}}
scenarios:
  sleep:
    script: sleep.py
    params: {{part: {parts}}}
    steps: {{first: {steps}, budget: {steps}}}
    limits: {{step_time: none, peak_memory: none}}
    timeout: 1m
trials: {{least: 2, most: 2}}
"""


class Sweep:
    """One sweep, during which something happens; `notes`: what it told."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder, self.environ, self.notes = folder, environ, io.StringIO()
        (folder / "sleep.py").write_text(SCRIPT)

    def run(
        self, *, nodes: int, parts: int, steps: int = 64, meanwhile: Callable[[], object] = lambda: None
    ) -> RunResult:
        path = self.folder / "matrix.yaml"
        path.write_text(MATRIX.format(nodes=nodes, parts=list(range(parts)), steps=steps))
        with plain_progress(self.notes) as progress:
            context = RunContext(environ=self.environ, progress=progress, stopped=threading.Event())
            options = SweepOptions(out=self.folder / "reports", seed=7)
            beside = threading.Thread(target=meanwhile, daemon=True)
            beside.start()
            result, directory = sweep(plan_sweep(path, options, self.environ), options, context)
            beside.join(30)
        write_result(result, directory)
        return result

    def trials(self) -> int:
        return len(list((self.folder / "reports").glob("*/[0-9]*/trials/*.json")))


@pytest.fixture
def run(tmp_path: Path, environ: dict[str, str]) -> Sweep:
    return Sweep(tmp_path, environ)


def machines(result: RunResult) -> dict[str, set[str]]:
    """By row, the nodes that measured it."""
    found: dict[str, set[str]] = {}
    for cell in result.cells:
        found.setdefault(str(cell.cell.variant), set()).update(trial.machine for trial in cell.trials)
    return found


def assert_whole(result: RunResult, *, parts: int) -> None:
    """Nothing is lost or doubled, and no row is of two nodes."""
    assert [len(found) for found in machines(result).values()] == [1] * parts, machines(result)
    assert [len([one for one in cell.trials if one.measured]) for cell in result.cells] == [2] * 2 * parts


def test_rows_are_shared_by_the_nodes_and_found_again_by_the_next_sweep(run: Sweep, cluster: Cluster) -> None:
    result = run.run(nodes=2, parts=4)
    assert_whole(result, parts=4)
    used = set.union(*machines(result).values())
    assert len(used) == 2
    assert used < set(cluster.nodes)
    told = summary.summarise(result)
    assert {cell["machine"] for cell in told["cells"]} == used
    assert all(f"measured on {node}" in html_page.render(result) for node in used)
    assert cluster.jobs() == []
    again = run.run(nodes=2, parts=4)
    assert machines(again) == machines(result)
    assert run.trials() == 32, "the second sweep took over all trials of the first"
    assert {one.run for cell in again.cells for one in cell.trials} == {result.directory.name}


def test_a_sweep_begins_with_the_nodes_that_there_are_and_others_join(
    run: Sweep, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would wait for the last of them, while the first are paid for."""
    monkeypatch.setattr(opening, "GATHER_S", 0.5)
    others = ["sbatch", "--exclusive", "--nodes=2", "--time=5", "--output=/dev/null", "--wrap=sleep 300"]
    job = cluster.slurm(*others).split()[-1]
    assert until(lambda: "R" in cluster.slurm("squeue", "--noheader", f"--jobs={job}", "--format=%t"), seconds=10)

    def free() -> None:
        until(lambda: run.trials() >= 2, seconds=30)
        cluster.slurm("scancel", job)

    result = run.run(nodes=2, parts=6, steps=100, meanwhile=free)
    assert_whole(result, parts=6)
    assert "joins the pool" in run.notes.getvalue()
    assert len(set.union(*machines(result).values())) == 2
    assert cluster.jobs() == []


@pytest.mark.kills
def test_a_row_starts_again_on_another_node_if_its_own_is_lost(
    run: Sweep, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation, "GONE_NODE_S", 1.0)

    def lose() -> None:
        until(lambda: run.trials() >= 2, seconds=30)
        time.sleep(0.3)
        cluster.lose_node(cluster.nodes[0])

    result = run.run(nodes=2, parts=4, steps=100, meanwhile=lose)
    assert_whole(result, parts=4)
    assert "was lost" in run.notes.getvalue()
    assert result.hosts[0].problem is None
    assert cluster.jobs() == []
