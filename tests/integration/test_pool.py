"""Pools on real engines: rows are shared, machines are lost in the middle of a row, and a card is distinguished from
its host.

The engines are those of the lab; their GPUs are doubles.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness.model import RunResult, Trial
from harness.report import html_page
from harness.report.exports import summary_json
from harness.report.text.headline import sentence
from harness.store.saved_run import read_result
from tests import pools
from tests.lab.daemon import Daemon
from tests.lab.running import Lab
from tests.players.world import BASE
from tests.pools import gpus_of, machines
from tests.waiting import until

pytestmark = [
    pytest.mark.docker,
    # The Docker SDK leaves a socket to the garbage collector for each refused connection.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SCRIPT = '''"""A step that sleeps; on the cards that are named, it fails."""
import os
import time


def setup(part=0, bad="none"):
    if os.environ.get("NVIDIA_VISIBLE_DEVICES", "-") in bad.split():
        raise_at = 3
    else:
        raise_at = None
    count = [0]

    def step():
        count[0] += 1
        if count[0] == raise_at:
            raise RuntimeError("planted")
        time.sleep(0.002)

    return step
'''


@pytest.fixture
def pair(lab: Lab, tmp_path: Path) -> Iterator[Lab]:
    """Return the lab's hosts as two equal machines."""
    before = {daemon: daemon.data.read_text() for daemon in (lab.old, lab.new)}
    for number, daemon in enumerate(before, start=1):
        daemon.data.write_text(json.dumps(gpus_of(number)))
    yield lab
    for daemon, text in before.items():
        daemon.data.write_text(text)


def farm(lab: Lab) -> str:
    return f'{{farm: {{engine: ["{lab.old.address}", "{lab.new.address}"], gpus: each}}}}'


def write(
    folder: Path, hosts: str, *, rows: int, bad: str = "none", steps: int = 100, trials: int = 2, versions: int = 2
) -> Path:
    images = ", ".join(f'v{number}: "{BASE}"' for number in range(versions))
    series = f"{{images: {{{images}}}}}"
    return pools.write(folder, hosts, rows=rows, steps=steps, series=series, trials=trials, script=SCRIPT, bad=bad)


def swept(path: Path, *, meanwhile: Callable[[Path], None] = lambda folder: None, wait_s: float = 60.0) -> RunResult:
    return pools.swept(path, io.StringIO(), environ={}, meanwhile=meanwhile, pool_wait_s=wait_s)


def trials(result: RunResult) -> list[Trial]:
    return [trial for cell in result.cells for trial in cell.trials]


def left(daemon: Daemon) -> list[str]:
    """Return what is left of the harness on an engine."""
    with closing(daemon.client()) as client:
        return [each.name for each in client.containers.list(all=True) if each.name.startswith("harness")]


def wait_for(reports: Path, count: int) -> None:
    assert until(lambda: len(list(reports.glob("*/[0-9]*/trials/[!.]*"))) >= count, seconds=60)


def test_rows_are_shared_and_each_is_measured_whole_on_one_machine(pair: Lab, tmp_path: Path) -> None:
    """A second sweep finds each row on the machine that measured it: otherwise it would measure half of the rows again,
    or mix machines.
    """
    path = write(tmp_path, farm(pair), rows=3)
    result = swept(path)
    of = machines(result)
    assert [len(found) for found in of.values()] == [1] * 3
    assert set.union(*of.values()) == {f"{pair.old.folder}/docker.sock", f"{pair.new.folder}/docker.sock"}
    assert {cell.verdict.verdict for cell in result.cells} <= {"flat", "inconclusive"}
    told = json.loads(summary_json.encoded(result))
    assert {cell["machine"] for cell in told["cells"]} == set.union(*of.values())
    assert f"measured on {pair.old.folder}/docker.sock" in html_page.render(result)
    assert json.loads(summary_json.encoded(read_result(result.directory))) == told
    assert left(pair.old) == left(pair.new) == []
    second = swept(path)
    assert machines(second) == of
    assert {trial.run for trial in trials(second)} == {result.directory.name}


def test_a_machine_that_differs_is_left_out_and_told(pair: Lab, tmp_path: Path) -> None:
    pair.new.set_gpus(driver="550.54.14")
    result = swept(write(tmp_path, farm(pair), rows=2, trials=1))
    assert set.union(*machines(result).values()) == {f"{pair.old.folder}/docker.sock"}
    (warning,) = [text for text in result.warnings if "left out" in text]
    assert f"{pair.new.folder}/docker.sock is left out of the pool: it differs in GPU driver 550.54.14 (" in warning
    assert result.hosts[0].problem is None


def test_a_row_waits_for_its_machine_and_goes_on_there(pair: Lab, tmp_path: Path) -> None:
    """Nothing is lost, counted twice or left; launches of the interrupted round are not compared, but count."""

    def meanwhile(reports: Path) -> None:
        wait_for(reports, 2)
        pair.new.kill()
        time.sleep(2)
        pair.new.start(gpus_of(2))

    result = swept(write(tmp_path, farm(pair), rows=2, steps=600), meanwhile=meanwhile)
    assert [len(found) for found in machines(result).values()] == [1] * 2
    assert [len([trial for trial in cell.trials if trial.measured]) for cell in result.cells] == [2] * 4
    assert set.union(*machines(result).values()) == {f"{pair.old.folder}/docker.sock", f"{pair.new.folder}/docker.sock"}
    assert not (result.directory / "set_aside").exists()
    assert left(pair.old) == left(pair.new) == []


def test_a_row_starts_again_on_another_machine_if_its_own_is_gone(pair: Lab, tmp_path: Path) -> None:
    def meanwhile(reports: Path) -> None:
        wait_for(reports, 3)
        pair.new.kill()

    try:
        result = swept(write(tmp_path, farm(pair), rows=2, steps=600), meanwhile=meanwhile, wait_s=2.0)
    finally:
        pair.new.start(gpus_of(2))
        pair.new.clear()
    of = machines(result)
    assert [len(found) for found in of.values()] == [1] * 2
    assert [len(cell.trials) for cell in result.cells] == [2] * 4
    assert [text for text in result.warnings if "was lost" in text]
    assert result.hosts[0].problem is None
    assert json.loads(summary_json.encoded(read_result(result.directory))) == json.loads(summary_json.encoded(result))


def host_of(daemon: Daemon, gpus: str = "each") -> str:
    return f'{daemon.name}: {{engine: "{daemon.address}", gpus: {gpus}}}'


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (1, "v0 is good on new/RTX 3090 and the RTX 4090: the fault of host old, not the image's"),
        (2, "v0 is good on the RTX 4090: the fault of the RTX 3090, not the image's"),
    ],
    ids=["its host", "its card"],
)
def test_two_nodes_with_one_card_tell_the_card_from_the_host(pair: Lab, tmp_path: Path, bad: int, told: str) -> None:
    """With only one RTX 3090, it stays open whether the card or its host is at fault."""
    one, two, nine = gpus_of(1, 2, 9)["gpus"]
    pair.new.set_gpus(gpus=[two, {**nine, "name": "NVIDIA GeForce RTX 4090", "compute_capability": "8.9"}])
    cards = " ".join(each["uuid"] for each in (one, two)[:bad])
    hosts = f"{{{host_of(pair.old)}, {host_of(pair.new)}}}"
    matrix = write(tmp_path, hosts, rows=1, bad=cards, steps=200, versions=1)  # on a busy machine a third is sampled
    result = swept(matrix)
    assert told in sentence(result)
