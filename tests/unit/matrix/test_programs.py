"""Programs in a matrix file: mistakes are reported with file, line and key, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import MatrixError
from harness.matrix import load_matrix
from harness.model import Variant
from harness.run.trial.payload import pack, payload_hash
from tests.unit.matrix.conftest import FakeIndex

HEAD = "version: 1\nseries:\n  env: {install: ['numpy=={version}'], versions: ['2.1.3']}\nscenarios:\n  a:\n"


def read(folder: Path, text: str) -> list[str]:
    """Return the problems of the matrix; none if it is right."""
    (folder / "train.py").write_text('"""Train a net."""\nclass Net:\n    def one(self): pass\nasync def two(): pass\n')
    (folder / "pkg").mkdir()
    (folder / "pkg" / "loop.py").write_text("from os import getcwd\ndef one(): pass\n")
    (folder / "pkg" / "go.py").touch()
    path = folder / "m.yaml"
    path.write_text(HEAD + "".join(f"    {line}\n" for line in text.splitlines()))
    try:
        load_matrix(path, environ={}, index=FakeIndex(silent=True))
    except MatrixError as error:
        return [line.replace(f"{folder}/", "") for line in str(error).splitlines()]
    return []


@pytest.mark.parametrize(
    "text",
    [
        "program: train.py",
        "program: train.py\nargs: [--rate, 0.1, '--batch={b}']\nparams: {b: [1, 2]}\nsteps_are: torch",
        "program: train.py\nsteps_are: {function: 'train:Net.one'}",
        "program: train.py\nfiles: [pkg]\nsteps_are: {function: 'pkg.loop:getcwd'}",
        "program: train.py\nsteps_are: {function: 'only_in_the_image:one'}",
        "module: pkg.go\nfiles: [pkg]\nsteps_are: {function: 'pkg.loop:one'}",
        "module: torch.distributed.run",
        "program: train.py\nprinted: {loss: 'loss: {}', pace: '{} it/s'}",
        "command: [x]\nprinted: {loss: 'loss: {}'}",
        "program: train.py\nprinted: off",
        "program: pkg/go.py\nfolder: .",
    ],
)
def test_what_is_right_is_taken(tmp_path: Path, text: str) -> None:
    assert not read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("program: train.py\nfolder: gone", "m.yaml:7: scenarios.a.folder: 'gone' does not exist"),
        ("program: gone.py", "m.yaml:6: scenarios.a.program: 'gone.py' does not exist"),
        ("program: pkg", "m.yaml:6: scenarios.a.program: 'pkg' is not a file"),
        ("program: m.yaml", "m.yaml:6: scenarios.a.program: m.yaml:2: is not Python"),
        (
            "program: train.py\ncommand: [x]",
            "scenarios.a: give exactly one of script, program, module, command and serve",
        ),
        ("command: [python, train.py]", "scenarios.a.command: 'train.py' is not copied; add it: files: [train.py]"),
        ("command: [sh, trian.sh]", "scenarios.a.command: 'trian.sh' is not in this file's folder; did you mean 'tr"),
        ("module: pkg.go", "scenarios.a.module: pkg is next to the matrix file, but is not copied; add it: files:"),
        ("module: pkg/go.py", "scenarios.a.module: 'pkg/go.py' is not the name of a module"),
        ("command: [x]\nargs: [y]", "scenarios.a.args: is for a program or a module"),
        (
            "program: train.py\nprinted: {loss: 'loss: (.*)'}",
            "scenarios.a.printed.loss: 'loss: (.*)': write the text around",
        ),
        ("program: train.py\nprinted: {loss: ' {} '}", "with {} in its place, such as 'loss: {}'"),
        ("program: train.py\nprinted: {loss: '{{}}'}", "'{{}}': write the text around the number, with {} in"),
        ("command: [x]\nprinted: {loss: 'loss'}", "scenarios.a.printed.loss: 'loss': write the text around"),
        ("program: train.py\nstep_pattern: x", "scenarios.a.step_pattern: is for a command"),
        ("program: train.py\nprobes: {lines: {steps: 9}}", "scenarios.a.probes.lines: is for a script or a command"),
        ("program: train.py\nparams: {b: 1}", "scenarios.a.params.b: args have no '{b}'"),
        (
            "program: train.py\nsteps_are: torhc",
            "m.yaml:7: scenarios.a.steps_are: 'torhc' is not allowed; write auto, ",
        ),
        ("program: train.py\nsteps_are: {function: one}", "scenarios.a.steps_are.function: 'one' is not a function"),
        ("program: train.py\nsteps_are: {function: 'train:Net.oen'}", "train.py has no Net.oen; did you mean 'one'?"),
        ("program: train.py\nsteps_are: {function: '__main__:Net'}", "Net is a class; name a function or a method"),
        ("program: train.py\nsteps_are: {function: 'train:two'}", "train.py:4: two is async"),
        ("program: train.py\nfiles: [pkg]\nsteps_are: {function: 'pkg.loop:x'}", "pkg/loop.py has no x; it has: one"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    (line,) = read(tmp_path, text)
    assert problem in line


def test_a_program_is_copied_and_started_with_its_arguments(tmp_path: Path) -> None:
    assert not read(
        tmp_path,
        "program: train.py\nfiles: [pkg]\nargs: ['--batch={b}', x]\nparams: {b: 8}\nprinted: {loss: 'loss: {}'}",
    )
    (scenario,) = load_matrix(tmp_path / "m.yaml", environ={}, index=FakeIndex(silent=True)).scenarios
    variant = Variant(scenario=scenario, params=(("b", 8),))

    assert scenario.title == "Train a net."
    assert (scenario.program, scenario.args) == (tmp_path / "train.py", ("--batch={b}", "x"))
    assert scenario.printed == (("loss", "loss: {}"),)
    payload = pack(variant)
    assert {"scenario/train.py", "scenario/pkg/loop.py"} < set(payload.files)
    asked = {
        "path": "scenario/train.py",
        "module": None,
        "args": ["--batch=8", "x"],
        "launcher": [],
        "steps_are": "auto",
    }
    assert payload.job["printed"] == {"loss": "loss: {}"}
    assert (payload.job["program"], payload.job["script"], payload.job["command"]) == (asked, None, None)


def test_another_way_to_count_steps_is_another_trial(tmp_path: Path) -> None:
    hashes = set()
    for number, steps_are in enumerate(["auto", "torch", "{function: 'train:Net.one'}"]):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not read(folder, f"program: train.py\nsteps_are: {steps_are}")
        hashes.add(
            payload_hash(
                Variant(scenario=load_matrix(folder / "m.yaml", environ={}, index=FakeIndex(silent=True)).scenarios[0])
            )
        )
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        ("torchrun --nproc-per-node {gpus}", ["torchrun", "--nproc-per-node", "{gpus}"]),
        ("mpirun -n {n}", ["mpirun", "-n", "4", "{python}", "-u"]),
    ],
)
def test_a_launcher_starts_the_ranks_of_a_program(tmp_path: Path, launcher: str, words: list[str]) -> None:
    """mpirun starts any command, so that the program needs its interpreter; torchrun starts Python by itself."""
    params = "params: {n: 4}" if "{n}" in launcher else ""
    assert not read(tmp_path, f"program: train.py\nlauncher: {launcher}\n{params}")
    (scenario,) = load_matrix(tmp_path / "m.yaml", environ={}, index=FakeIndex(silent=True)).scenarios
    assert pack(Variant(scenario=scenario, params=(("n", 4),))).job["program"]["launcher"] == words


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("program: train.py\nlauncher: 'mpirun \"'", "is no command"),
        ("command: [x]\nlauncher: torchrun", "is for a program or a module"),
    ],
)
def test_a_launcher_that_starts_nothing_is_said(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in str(read(tmp_path, text))
