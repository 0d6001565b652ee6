"""What a trial shows about the machine instead of the image, and what progress shows about a trial on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import InfrastructureError
from harness.judge.api import describe_trial, wants_alone
from harness.model import Cell, Conditions, End, Image, Limits, MetricLimit, Mount, Steps, Trace, Trial
from harness.model.matrix import Gpu
from harness.model.measured import Printed
from harness.run.hosts.cell_launcher import review
from tests.players.plans import a_cell, host
from tests.players.sweeps import MATRIX, Engine, run
from tests.players.trials import made_trial

GPU = Gpu(uuid="GPU-1", name="NVIDIA GeForce RTX 3090", index=0, compute_capability="8.6", driver="470.82", cuda="11.4")
REFUSED = (
    "matrix.yaml:7: the engine refused: OCI runtime create failed: Running hook #0:: error running hook: exit status 1,"
    " stderr: nvidia-container-cli: requirement error: unsatisfied condition: cuda>=11.8, please update your driver"
)


class WithGpu(Engine):
    """An engine with a GPU that its agents do not see; what they measure does not matter here."""

    def gpus(self, images: Sequence[Image], say: Callable[[str], None]) -> tuple[Gpu, ...]:
        return (GPU,)


def cell(engine: str = "docker", **scenario: Any) -> Cell:
    return a_cell(on=host("old", engine, "all"), gpu="RTX 3090", gpus=(GPU,), **scenario)


def trial(**fields: Any) -> Trial:
    return made_trial(**{"end": "infrastructure", **fields})


def test_a_launch_that_the_runtime_refused_for_the_driver_is_incompatible() -> None:
    _, incompatible = review(cell(), trial(message=REFUSED))
    assert incompatible == "the image requires cuda>=11.8, but the host's driver is older"
    assert review(cell(), trial(message="no space left on device"))[1] == ""


TAKEN = "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"


def test_a_version_is_not_accused_because_another_program_has_its_port() -> None:
    found, _ = review(cell("process"), trial(end="setup", message=TAKEN))
    assert found.end == "infrastructure"
    assert found.message.startswith("a port that the program needs is in use on this host")
    assert found.message.endswith(TAKEN)
    printed = Printed(tail="TensorBoard: port 6006: address already in use, trying 6007")
    of_tensorflow = trial(end="setup", message="UnknownError: Could not start gRPC server", output=printed)
    assert review(cell("process"), of_tensorflow)[0].end == "infrastructure"
    other = trial(end="setup", message="ImportError: no name x", output=printed)
    assert review(cell("process"), other)[0] == other, "that was not what it failed of"


@pytest.mark.parametrize(("engine", "steps"), [("docker", 0), ("process", 40)])
def test_a_version_that_takes_its_own_port_twice_fails(engine: str, steps: int) -> None:
    """A container has its own ports, and a program that made steps had the port that it needs."""
    assert review(cell(engine), trial(end="crash", message=TAKEN, last_step=steps))[0].end == "crash"


NO_NAME = "setup: gaierror: [Errno -3] Temporary failure in name resolution"
NO_RIGHT = "setup: PermissionError: [Errno 13] Permission denied: '/home/app/.cache'"


@pytest.mark.parametrize(
    ("engine", "fields", "remedy"),
    [
        ("docker", {"message": NO_NAME}, "`network: true` of the scenario, or --network of try"),
        ("docker", {"message": NO_NAME, "end": "crash", "last_step": 2}, "--network of try"),
        ("docker", {"message": NO_RIGHT}, "for root, `cap_add: [DAC_OVERRIDE]` of the scenario helps, too"),
        ("docker", {"message": NO_RIGHT, "last_step": 9}, ""),
        ("docker", {"message": "ImportError: no name x"}, ""),
        ("process", {"message": NO_NAME}, ""),
        ("process", {"message": "OSError: AF_UNIX path too long"}, "set TMPDIR to a shorter folder"),
    ],
)
def test_what_a_trial_may_not_do_is_told_with_what_helps(engine: str, fields: dict[str, Any], remedy: str) -> None:
    """Every version failed before its first step, or after the lines that it prints first, and nothing was said of
    `--network`."""
    failed = trial(**{"end": "setup", **fields})
    found, _ = review(cell(engine), failed)
    assert (
        found.message == f"{failed.message}; {found.message[len(failed.message) + 2 :]}" if remedy else failed.message
    )
    assert remedy in found.message
    if failed.message == NO_NAME:
        assert review(cell(engine, network=True), failed)[0] == failed


@pytest.mark.parametrize(
    ("at", "path", "is_of_data"),
    [
        ("/data", "/data/b", True),
        ("/data/b", "/data/b", True),
        ("data/", "data/b", True),
        ("data", "/.harness/scenario/data/b", True),
        ("/data", "/database/b", False),
        ("data", "/home/app/data/b", False),
    ],
)
def test_no_version_is_accused_of_data_that_its_user_may_not_read(at: str, path: str, *, is_of_data: bool) -> None:
    """An image of another user `crashes since 2`; if the folder itself cannot be read, nothing is launched."""
    mounts = (Mount(source=Path("/srv/d"), at=at),)
    for message in (f"cat: {path}: Permission denied", f"PermissionError: [Errno 13] Permission denied: '{path}'"):
        found, _ = review(cell(mounts=mounts), trial(end="crash", message=message, last_step=9))
        assert (found.end == "infrastructure") == is_of_data
        if is_of_data:
            assert found.message == f"the launch's user is refused something in /srv/d: {message}"
    other = trial(end="crash", message="/data/b: Read-only file system", last_step=9)
    assert review(cell(mounts=mounts), other)[0] == other, "the version writes there"


def test_such_a_launch_is_not_tried_again(tmp_path: Path) -> None:
    launched: list[str] = []

    def fail(host: str, what: str, number: int) -> None:
        launched.append(what)
        if what == "launch 2":
            raise InfrastructureError(REFUSED)

    result = run(
        tmp_path,
        fail,
        matrix=MATRIX.replace("two: {engine: process}", "").replace("process}", "process, gpus: all}"),
        engine=WithGpu,
    )
    assert launched.count("launch 2") == 1
    (found,) = [each.verdict for each in result.cells if each.cell.image.version == "2"]
    assert (found.verdict, found.why) == (
        "incompatible", "the image requires cuda>=11.8, but the host's driver is older",
    )  # fmt: skip


ROWS = np.arange(1.0, 4001.0)
QUIET = {"rss_kib": 100_000 + np.random.default_rng(1).normal(0, 20, 4000), "step_s": np.full(4000, 0.01)}


def whole(*, grows: Mapping[str, Any] = {}, counts: Mapping[str, Any] = {}, **fields: Any) -> Trial:
    """Return a launch that made all its steps, with these columns besides quiet memory and step times."""
    trace = Trace(step=ROWS, columns={**QUIET, **grows}, counts=counts)
    return trial(end="completed", last_step=4000, trace=trace, **fields)


LOSS_IS_NOT_ASKED = Limits(metrics=(MetricLimit(metric="loss", rule="none", limit=0.0),))


@pytest.mark.parametrize(
    ("launch", "limits", "told"),
    [
        (
            whole(grows={"gpu_kib": 800_000 + 24 * ROWS}),
            Limits(),
            ("leak 24 KiB/step of GPU memory to step 4000", True),
        ),
        (whole(grows={"gpu_kib": 0 * ROWS}), Limits(), ("flat to step 4000", False)),
        # the line of a launch whose loss was NaN from its first step said only "flat to step 4000"
        (
            whole(not_finite={"loss": (4000, 1)}),
            Limits(),
            ("flat to step 4000; NaN, infinity or a number beyond 1e30 in loss", False),
        ),
        (whole(not_finite={"loss": (4000, 1)}), LOSS_IS_NOT_ASKED, ("flat to step 4000", False)),
    ],
)
def test_a_watcher_is_told_what_a_launch_shows(launch: Trial, limits: Limits, told: tuple[str, bool]) -> None:
    assert describe_trial(cell(steps=Steps(), limits=limits), launch) == told


@pytest.mark.parametrize(
    ("end", "message", "told"),
    [
        (
            "crash",
            "1 of 3 requests failed\nstep 3: KeyError: 'a'",
            "crash: step 3: KeyError: 'a'; 1 of 3 requests failed",
        ),
        ("setup", "setup: KeyError: 'a'", "setup: KeyError: 'a'"),
        ("setup", "before the first step: KeyError: 'a'", "before the first step: KeyError: 'a'"),
    ],
)
def test_a_watcher_is_told_once_where_a_launch_failed(end: End, message: str, told: str) -> None:
    """It read `crash after step 2: after the last step: …`, depending on the words of the message."""
    failed = trial(end=end, message=message, last_step=2)
    assert describe_trial(cell(steps=Steps(), limits=Limits()), failed) == (told, end == "crash")


def test_a_watcher_is_told_how_a_command_ended_that_was_too_short_for_a_sample() -> None:
    """`completed: `"""
    asked = cell(steps=Steps(), limits=Limits(exit_only=True))
    assert describe_trial(asked, trial(end="completed", trace=None)) == ("exit 0", False)


def test_a_watcher_is_told_of_what_else_grows() -> None:
    """A launch that left files behind was "flat" in the progress."""
    counts = {"step": ROWS[::100], "shm": 8 * ROWS[::100]}
    fills = whole(counts=counts, fingerprint={"engine": "process"})
    leaks = whole(counts=counts, fingerprint={"engine": "process"}, grows={"rss_kib": QUIET["rss_kib"] + 24 * ROWS})
    asked = cell(steps=Steps(), limits=Limits())
    assert describe_trial(asked, fills) == ("growth: shared memory 8 KiB/step to step 4000", True)
    assert describe_trial(asked, leaks) == ("growth: shared memory 8 KiB/step; leak 24 KiB/step to step 4000", True)
    beside = replace(fills, conditions=Conditions(beside=1))
    assert describe_trial(asked, beside) == ("flat to step 4000", False)
    assert wants_alone(asked, beside)
    assert not wants_alone(asked, fills)


def test_files_of_another_program_that_come_and_go_let_launches_take_turns() -> None:
    """One busy neighbour on a workstation ended the slices of a row after their first round."""
    counts = {"step": ROWS[::100], "shm": 16.0 * (np.arange(len(ROWS[::100])) % 5 == 3)}
    taking_turns = whole(counts=counts, fingerprint={"engine": "process"}, conditions=Conditions(parked=4))
    assert not wants_alone(cell(steps=Steps(), limits=Limits()), taking_turns)
