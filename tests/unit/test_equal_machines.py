"""Pools of equal machines: which machines are equal, what each one runs, and what distinguishes their trials."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import Interrupted
from harness.flows import doctor
from harness.flows.context import RunContext
from harness.flows.hosts import OpenHost, lanes_of, refuse_missing, states_of, troubles_of
from harness.judge.comparable import set_apart
from harness.model import Host, Image, Lane, Matrix, Plan, Prepared, Trial, machine_name
from harness.model.matrix import Gpu, Pull
from harness.model.watching import Say
from harness.plan.cells import choose_lanes, select, with_lanes
from harness.plan.equal_machines import MachineSeen, odd_ones, unlike
from harness.report.terminal.progress import plain_progress
from harness.run.engine import Lease
from harness.run.trial.payload import trial_key
from harness.store.plan_file import plan_from_file, plan_to_json, read_plan_file
from tests.players.plans import MATRIX, WHERE, Opened

FACTS = {
    "engine": "docker 25.0.3", "name": "gpu1", "cpu": "AMD EPYC 7742", "cpus": 64, "memory_bytes": 540_000_000_000,
    "kernel": "6.1.0-18-amd64", "architecture": "x86_64",
}  # fmt: skip
CARD = Gpu(uuid="GPU-1", name="NVIDIA GeForce RTX 3090", index=0, driver="550.54.14", memory_mib=24576)
FARM = Host(
    name="farm", engine="ssh://gpu1, ssh://gpu2, ssh://gpu3", gpus="each", where=WHERE,
    pool=("ssh://gpu1", "ssh://root@gpu2", "tcp://gpu3:2376"),
)  # fmt: skip


def seen(name: str, *, driver: str = "550.54.14", **facts: Any) -> MachineSeen:
    card = replace(CARD, uuid=f"GPU-{name}", driver=driver)
    return MachineSeen(name=name, facts={**FACTS, "name": name, **facts}, gpus=(card,))


def test_equal_machines_stay_whatever_their_names_and_serial_numbers() -> None:
    memory = FACTS["memory_bytes"]
    assert odd_ones([seen("gpu1"), seen("gpu2"), seen("gpu3", memory_bytes=int(str(memory)) - 4096)]) == {}
    assert odd_ones([]) == {}


def test_the_odd_one_is_named_with_all_that_differs() -> None:
    """Its rows would look bad because of its driver."""
    machines = [seen("gpu1", driver="535.104.05", kernel="5.15.0"), seen("gpu2"), seen("gpu3")]
    assert odd_ones(machines) == {
        "gpu1": "kernel 5.15.0 (gpu2, gpu3: 6.1.0-18-amd64), GPU driver 535.104.05 (550.54.14)"
    }


def test_what_is_not_known_of_one_machine_alone_is_a_difference() -> None:
    assert odd_ones([seen("gpu1"), seen("gpu2", cpu=None)]) == {"gpu2": "CPU not known (gpu1: AMD EPYC 7742)"}
    assert odd_ones([seen("gpu1", cpu=None), seen("gpu2", cpu=None)]) == {}


def test_another_number_of_gpus_is_a_difference() -> None:
    lacking = replace(seen("gpu2"), gpus=())
    assert odd_ones([seen("gpu1"), lacking])["gpu2"].startswith("GPUs 0 (gpu1: 1), GPU ")


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_those_that_stay_are_equal_and_the_most(drivers: list[str]) -> None:
    machines = [seen(f"m{number}", driver=driver) for number, driver in enumerate(drivers)]
    odd = odd_ones(machines)
    stay = {one.gpus[0].driver for one in machines if one.name not in odd}
    assert len(stay) == 1
    assert drivers.count(str(stay.pop())) == max(map(drivers.count, drivers)) == len(drivers) - len(odd)


def test_a_slow_machine_is_named_by_its_control() -> None:
    assert unlike({"gpu1": 1.0, "gpu2": 1.31, "gpu3": 1.02, "gpu4": 0.99}) == {
        "gpu2": "31 % slower than usual in this pool"
    }
    assert unlike({"gpu1": 1.0, "gpu2": 1.05}) == unlike({"gpu1": 1.0}) == {}


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("ssh://root@gpu1", "gpu1"), ("ssh://gpu1:22/x", "gpu1:22"), ("tcp://10.0.0.1:2376", "10.0.0.1:2376"),
        ("unix:///run/a.sock", "/run/a.sock"), ("context:lab", "lab"), ("docker", "docker"),
    ],
)  # fmt: skip
def test_a_machine_is_called_by_its_address(engine: str, name: str) -> None:
    assert machine_name(engine) == name


def test_a_pool_has_a_host_for_each_machine_under_the_pool_s_name() -> None:
    machines = FARM.machines
    assert [(one.name, one.machine, one.engine, one.pool) for one in machines] == [
        ("farm", "gpu1", "ssh://gpu1", ()), ("farm", "gpu2", "ssh://root@gpu2", ()),
        ("farm", "gpu3:2376", "tcp://gpu3:2376", ()),
    ]  # fmt: skip
    assert replace(FARM, pool=()).machines == (replace(FARM, pool=()),)


def test_lanes_of_equal_machines_have_one_name() -> None:
    """With a UUID, every machine would have a lane of its own."""
    cards = [(replace(CARD, uuid=f"GPU-{a}"), replace(CARD, uuid=f"GPU-{b}", index=1)) for a, b in ("12", "34")]
    names = [[lane.gpu for lane in choose_lanes(FARM.machines[0], pair)] for pair in cards]
    assert names[0] == names[1] == ["RTX 3090 #1", "RTX 3090 #2"]


def opened() -> list[OpenHost]:
    found = []
    for number, machine in enumerate(FARM.machines, start=1):
        engine: Any = Opened(machine=machine.machine)
        lanes = choose_lanes(machine, [replace(CARD, uuid=f"GPU-{number}")])
        found.append(OpenHost(host=machine, part_of=FARM, engine=engine, lanes=lanes))
    return found


def test_doctor_does_not_wait_for_a_machine_in_use_until_its_sweep_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEASE_WAIT_S", 0.05)
    machines = opened()[:2]
    for each in machines:
        engine: Any = each.engine
        engine.lease = in_use
    image = Prepared(image=MATRIX.series[0].images[0], reference="r", digest="sha256:1")
    with plain_progress(io.StringIO()) as progress:
        context = RunContext(environ={}, progress=progress, stopped=threading.Event())
        found = [doctor.Examined(machine=each, images={("app", "1.0"): (image, 1)}) for each in machines]
        doctor.measure(found, context)
    assert {each.control for each in found} == {"the machine is in use; run doctor again when it is free"}


@contextmanager
def in_use(say: Say, stopped: Callable[[], bool]) -> Iterator[Lease]:
    """Wait as engines do for the lease of another process. Raises Interrupted once it is stopped."""
    while not stopped():
        say("waiting: another process uses this host")
        time.sleep(0.01)
    raise Interrupted("interrupted")
    yield


def farm_plan(machines: list[OpenHost]) -> Plan:
    matrix = Matrix(
        name="m", path=Path("m.yaml"), series=MATRIX.series[:1], hosts=(FARM,), scenarios=MATRIX.scenarios[:1]
    )
    return with_lanes(select(matrix, seed=1), lanes_of(machines))


def test_a_machine_runs_a_cell_by_its_own_address_and_card() -> None:
    machines = opened()
    cell = farm_plan(machines).cells[0]
    own = machines[1].own(cell)
    assert (own.id, str(own.lane)) == (cell.id, "farm/RTX 3090")
    assert (own.lane.host.engine, own.lane.gpus[0].uuid) == ("ssh://root@gpu2", "GPU-2")


def test_no_trial_of_one_machine_is_taken_over_on_another() -> None:
    """A row that is continued would be measured on two machines."""
    machines = opened()
    cell = replace(farm_plan(machines).cells[0], variant=MATRIX_VARIANT)
    prepared = Prepared(image=cell.image, reference="r", digest="d")
    keys = {trial_key(each.own(cell), prepared=prepared, facts=each.facts) for each in machines}
    assert len(keys) == len(machines)


MATRIX_VARIANT = select(MATRIX, seed=1).cells[0].variant


def test_trials_of_two_machines_are_never_compared() -> None:
    one = Trial(cell_id="a", number=1, key="k", end="completed", fingerprint={"machine": "gpu1"})
    two = replace(one, number=2, fingerprint={"machine": "gpu2"})
    kept, reasons = set_apart([[one, one], [two]])
    assert kept == ((one, one), ())
    assert [str(reason) for reason in reasons] == ["machine gpu1 and gpu2"]


def test_a_pool_is_usable_if_one_machine_is() -> None:
    machines = opened()
    machines[0].problem = "m.yaml:1: x: gpu1 is left out of the pool: it differs in kernel 5 (gpu2: 6)"
    (state,) = states_of(machines)
    assert state.problem is None
    assert troubles_of(machines) == (f"{FARM.where}: {machines[0].problem}",)
    assert lanes_of(machines)["farm"] == (Lane(host=FARM, gpu="RTX 3090", gpus=machines[1].lanes[0].gpus),)


def test_a_pool_without_a_machine_tells_what_is_wrong_with_each_in_one_line() -> None:
    machines = opened()
    for number, each in enumerate(machines):
        each.problem = f"no. {number}"
    (state,) = states_of(machines)
    assert state.problem == ("no machine of the pool can be used: gpu1: no. 0; gpu2: no. 1; gpu3:2376: no. 2")
    assert troubles_of(machines) == ()


def test_a_pool_comes_back_from_plan_json(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(plan_to_json(farm_plan(opened()))))
    (host,) = plan_from_file(read_plan_file(tmp_path), tmp_path).matrix.hosts
    assert host == replace(FARM, where=host.where)


def test_the_image_that_a_registry_is_asked_for_is_named() -> None:
    """The line of the lane read `local: images: asking for team/app:1`."""
    engine, context = MagicMock(), MagicMock()
    engine.refused.return_value = ""
    image = Image(series="app", version="1", source=Pull(reference="team/app:1"), where=WHERE)
    refuse_missing(MagicMock(engine=engine, usable=True), [image], context)
    assert context.preparing.call_args.kwargs["image"] == "team/app:1"
