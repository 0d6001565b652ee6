"""What cannot be narrowed is reported in one line, before anything is launched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from harness.cli import cli
from harness.errors import UsageError
from harness.model import Finding, Matrix, Variant, Varied
from harness.narrow import flow
from harness.narrow.question import matrix_of_files, of_run
from harness.plan.cells import select
from harness.run.slurm.request import NodeRequest
from harness.run.trial.payload import pack
from harness.store import inputs
from harness.store.saved_run import StoredRun, read_run
from tests.players import stored_run
from tests.players.narrowing import inventory


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    return read_run(stored_run.write(tmp_path, environment=()))


def refused(run: StoredRun, finding: Finding) -> str:
    with pytest.raises(UsageError) as error, of_run(run, 1, finding):
        pass
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_sides_of_a_finding_are_its_last_good_and_first_bad_version(run: StoredRun) -> None:
    with of_run(run, 1, run.findings[0]) as question:
        assert [cell.image.version for cell in question.plan.cells] == ["6.2.0", "6.3.0"]
        script = question.plan.cells[0].variant.scenario.script
        assert script is not None
        assert script.read_text() == stored_run.SCRIPT
        assert question.seen, "the launches of the bad version tell how often it fails"
    assert not script.exists()


def test_the_program_of_a_finding_is_the_one_that_the_run_kept(run: StoredRun, tmp_path: Path) -> None:
    """A finding of `harness try` or `init` could not be narrowed, because the program existed twice."""
    scripted = run.findings[0].variant.scenario
    programmed = replace(scripted, script=None, program=scripted.script)
    kept, missing = inputs.restored(programmed, run.files, run.path, into=tmp_path / "copy")
    assert not missing
    assert kept.program is not None
    assert kept.program.read_text() == stored_run.SCRIPT
    assert pack(Variant(scenario=kept)).files, "its files go to different places"


@pytest.mark.parametrize("key", ["client", "requests"])
def test_a_run_that_did_not_keep_what_a_server_is_sent_is_refused(run: StoredRun, tmp_path: Path, key: str) -> None:
    """`narrow` ended with KeyError."""
    served = {"script": None, "serve": ("server",), key: Path("sent")}
    scenario = replace(run.findings[0].variant.scenario, **served)
    assert inputs.restored(scenario, run.files, run.path, into=tmp_path / "copy") == (scenario, ("sent",))


def test_a_repair_is_no_finding_to_narrow(run: StoredRun) -> None:
    assert "is where a fault was fixed; give narrow a finding at which" in refused(run, run.findings[1])


def test_what_is_bad_from_the_start_has_no_good_version(run: StoredRun) -> None:
    assert "bad from the start, so there is no good version" in refused(run, replace(run.findings[0], before=None))
    assert "only some launches are slower" in refused(run, replace(run.findings[0], verdict="two modes"))


def test_a_host_of_a_cluster_is_refused_with_the_way_that_works(run: StoredRun) -> None:
    lane = run.findings[0].lane
    slurm = replace(lane, host=replace(lane.host, engine="slurm", settings=NodeRequest(container="none")))
    assert "run it on a node with --good and --bad" in refused(run, replace(run.findings[0], lane=slurm))


def test_a_value_that_the_run_withholds_is_named(tmp_path: Path) -> None:
    run = read_run(stored_run.write(tmp_path))
    assert "withholds the value of API_TOKEN, which a launch needs" in refused(run, run.findings[0])


def test_the_value_of_a_variable_is_not_narrowed(tmp_path: Path) -> None:
    """`narrow` of a command that was varied ended in a traceback, after its first launches."""
    run = read_run(stored_run.write(tmp_path, environment=(), source=Varied(variable="LEVEL")))
    assert "differ only in LEVEL, so there is nothing to narrow" in refused(run, run.findings[0])


def test_a_run_without_its_script_says_so(run: StoredRun) -> None:
    for path in (run.path / "inputs").iterdir():
        path.unlink()
    assert ": lacks " in refused(run, run.findings[0])


SIX = ("six==1.15.0\n", "six==1.16.0\n")


def matrix(
    folder: Path, good: str, bad: str, script: str = "def setup():\n    return lambda: None\n", command: str = ""
) -> Matrix:
    (folder / "a.txt").write_text(good)
    (folder / "b.txt").write_text(bad)
    (folder / "s.py").write_text(script)
    path = None if command else folder / "s.py"
    return matrix_of_files(folder / "a.txt", folder / "b.txt", script=path, command=tuple(command.split()))


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        ("six==1.15.0\n", "# the same\nsix==1.15.0\n", "ask for the same packages, so there is nothing to find"),
        ("", "six==1.15.0\n", "contains no requirement"),
        ("six==1.15.0\n", "-r other.txt\n", "is an option"),
        ("six==1.15.0 --hash=sha256:no\n", "six==1.16.0\n", "'sha256:no' is not a hash"),
    ],
)
def test_files_that_cannot_be_compared_are_told_before_anything_is_installed(
    good: str, bad: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=told):
        select(matrix(tmp_path, good, bad), seed=1)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("def setup(size):\n    return lambda: None\n", "give its params a default"),
        ("def setup(:\n", r"s\.py"),
        ("pass\n", "setup"),
    ],
)
def test_a_script_that_cannot_be_launched_is_told_first(script: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told):
        select(matrix(tmp_path, *SIX, script), seed=1)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.txt: cannot be read"):
        matrix_of_files(tmp_path / "gone.txt", tmp_path / "b.txt", script=None, command=("true",))


def test_a_command_finds_the_files_of_the_folder_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-- python check.py` failed on both sides, because the file was missing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "check.py").write_text("import helper\n")
    (tmp_path / "helper.py").touch()
    plan = select(matrix(tmp_path, *SIX, command="python check.py"), seed=1)
    assert {path.name for path in plan.matrix.scenarios[0].files} == {"check.py", "helper.py"}


@pytest.mark.parametrize("command", ["./check.sh", "/nowhere/check.sh"])
def test_a_program_that_is_not_there_is_told_before_both_versions_are_made(command: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^{command}: (no such file|is not in )"):
        select(matrix(tmp_path, *SIX, command=command), seed=1)


def test_a_program_that_no_environment_has_is_told_before_it_is_launched(tmp_path: Path) -> None:
    """`--dry-run` accepted it, and the real call launched both versions three times before it said so."""
    (row,) = select(matrix(tmp_path, *SIX, command="check"), seed=1).rows
    cells = dict(zip(("A", "B"), row.cells, strict=True))
    made = {side: SimpleNamespace(reference=str(tmp_path / side / "bin" / "python")) for side in cells}
    with pytest.raises(UsageError, match=r"^check: no such program"):
        flow._check_program(cells, made)  # type: ignore[arg-type]
    program = tmp_path / "B" / "bin" / "check"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    flow._check_program(cells, made)  # type: ignore[arg-type]


def test_a_dry_run_refuses_versions_of_which_nothing_can_be_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It printed the number of launches that a search takes, and the search then refused both versions."""
    plan = select(matrix(tmp_path, *SIX), seed=1)
    a, b = plan.rows[0].cells
    looked = {"A": inventory({"six": ("1.15", ())}), "B": inventory({"six": ("1.16", ())}, python="3.12.1")}

    @contextmanager
    def both_sides(*_: object, **__: object) -> Iterator[object]:
        yield SimpleNamespace(cells={"A": a, "B": b})

    monkeypatch.setattr(flow, "both_sides", both_sides)
    monkeypatch.setattr(flow, "installed", lambda both: looked)
    with pytest.raises(UsageError, match=r"cannot be swapped.*; without --dry-run, narrow compares mapped libraries$"):
        flow.dry_run(plan, Mock(), digests={})


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_folder_that_cannot_be_is_told_before_anything_is_launched(more: tuple[str, ...], tmp_path: Path) -> None:
    """Both versions were made and launched first."""
    matrix(tmp_path, *SIX)
    taken, (good, bad, script) = tmp_path / "taken", (str(tmp_path / name) for name in ("a.txt", "b.txt", "s.py"))
    taken.touch()
    words = ["narrow", "--good", good, "--bad", bad, script, "--out", str(taken), *more]
    with pytest.raises(UsageError, match="taken: cannot make a run's directory there: Not a directory; see --out"):
        CliRunner().invoke(cli, words, catch_exceptions=False)
