"""What editors, programs and shells request from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from harness.cli import cli


@pytest.mark.parametrize(("of", "title"), [((), "matrix.yaml"), (("summary",), "summary.json of a harness run")])
def test_a_program_gets_the_schema_that_it_checks_with(of: tuple[str, ...], title: str) -> None:
    done = CliRunner().invoke(cli, ["schema", *of])
    schema = json.loads(done.stdout)
    assert (done.exit_code, schema["title"]) == (0, title)
    jsonschema.Draft202012Validator.check_schema(schema)


def test_a_shell_completes_commands() -> None:
    words = {"COMP_WORDS": "harness sc", "COMP_CWORD": "1", "_HARNESS_COMPLETE": "bash_complete"}
    harness = Path(sys.executable).with_name("harness")
    done = subprocess.run([harness], env={**os.environ, **words}, capture_output=True, text=True, check=False)
    assert done.stdout == "plain,schema\n", done.stderr
