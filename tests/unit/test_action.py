"""The workflow step, with a stand-in for the harness."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROGRAM = """\
#!/bin/sh
printf '%s|' "$@" > "$SAID"
mkdir -p "$4/matrix/1" && echo "# the report" > "$4/matrix/1/report.md"
exit $ENDS
"""


def stepped(folder: Path, *, ends: int, **given: str) -> subprocess.CompletedProcess[str]:
    program = folder / "the program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    old = folder / "reports" / "matrix" / "0"
    old.mkdir(parents=True)
    (old / "report.md").write_text("an older report")
    os.utime(old / "report.md", (0, 0))
    environ = {
        **os.environ, "HARNESS": str(program), "HARNESS_COMMAND": "sweep", "HARNESS_MATRIX": "m.yaml",
        "HARNESS_ARGS": "", "HARNESS_OUT": str(folder / "reports"), "HARNESS_UNDECIDED": "pass",
        "GITHUB_OUTPUT": str(folder / "output"), "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "SAID": str(folder / "said"), "ENDS": str(ends), **given,
    }  # fmt: skip
    return subprocess.run([ROOT / "tools" / "action"], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("ends", "undecided", "code"), [(0, "pass", 0), (1, "pass", 1), (3, "pass", 3), (4, "pass", 0), (4, "fail", 4)]
)
def test_a_workflow_fails_exactly_where_the_command_does(tmp_path: Path, ends: int, undecided: str, code: int) -> None:
    done = stepped(tmp_path, ends=ends, HARNESS_UNDECIDED=undecided)
    assert done.returncode == code, done.stderr
    assert (tmp_path / "output").read_text() == f"exit-code={ends}\n"


def test_the_summary_of_a_step_is_the_report_of_this_run_alone(tmp_path: Path) -> None:
    stepped(tmp_path, ends=1, HARNESS_ARGS="--quick --only a=b")
    assert (tmp_path / "summary").read_text() == "# the report\n\n"
    assert (tmp_path / "said").read_text() == f"sweep|m.yaml|--out|{tmp_path}/reports|--quick|--only|a=b|"


def test_a_path_with_a_space_stays_one_argument(tmp_path: Path) -> None:
    """The program, and each path in `args`, was split at its spaces; lines after the first were ignored."""
    out = f"{tmp_path}/my reports"
    done = stepped(tmp_path, ends=0, HARNESS_MATRIX="my m.yaml", HARNESS_OUT=out, HARNESS_ARGS="--only 'a b'\n--quick")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "said").read_text() == f"sweep|my m.yaml|--out|{out}|--only|a b|--quick|"


@pytest.mark.parametrize(
    "given", [{"HARNESS_COMMAND": "clean"}, {"HARNESS_UNDECIDED": "maybe"}, {"HARNESS_ARGS": "'a"}]
)
def test_an_input_that_cannot_be_used_is_told(tmp_path: Path, given: dict[str, str]) -> None:
    done = stepped(tmp_path, ends=0, **given)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("action.yml: ")


def test_every_input_of_the_action_reaches_its_script_and_its_page() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    used = " ".join(action["runs"]["steps"][1]["env"].values())
    page = (ROOT / "docs" / "ci.md").read_text()
    for name in action["inputs"]:
        assert f"inputs.{name} " in used
        assert f"| `{name}` |" in page
