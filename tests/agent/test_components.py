"""What an image reports about its parts: a package that it does not report can never be named as the culprit."""

import sys
import sysconfig
from pathlib import Path
from typing import Any

from harness.agent.inside.components import record
from harness.narrow.inventory import Inventory, read_inventory
from tests.agent.driver import run

SCRIPT = """
def setup():
    import _ctypes
    return lambda: None
"""


def told(root: Path, python: str, script: str | None, **job: Any) -> Inventory:
    files = run(root, python, script, probe={"name": "components"}, looks=[20], **job).all("file")
    assert {each["name"] for each in files} == {"components.json"}
    return read_inventory("".join(each["text"] for each in files), variables={})


def test_each_python_tells_what_it_is_and_what_it_mapped(tmp_path: Path, python: str) -> None:
    found = told(tmp_path, python, SCRIPT)
    assert found.implementation == "CPython"
    assert any(Path(path).name.startswith("_ctypes") for path in found.mapped)
    assert all(len(digest) == 64 for digest in found.mapped.values())


def test_a_script_that_fails_at_once_waits_until_its_libraries_are_seen(tmp_path: Path, python: str) -> None:
    """The bad version often fails in its first step: the launch was over before its libraries were read."""
    for number in range(3):
        found = told(tmp_path / str(number), python, "def setup():\n    import _ctypes\n    return lambda: 1 / 0\n")
        assert any(Path(path).name.startswith("_ctypes") for path in found.mapped)


def test_packages_come_with_their_requirements_and_files(tmp_path: Path) -> None:
    found = told(tmp_path, sys.executable, SCRIPT)
    pytest_ = found.distributions["pytest"]
    assert pytest_.place == sysconfig.get_path("purelib")
    assert pytest_.holds(f"{pytest_.place}/pytest/__init__.py")
    assert any(text.startswith("pluggy") for text in pytest_.requires)
    assert "numpy" in {name for name in found.distributions if found.distributions[name].files}


def test_the_libraries_of_a_command_s_children_are_seen(tmp_path: Path) -> None:
    """In a shell that starts Python, only the grandchild maps the library."""
    code = "import _ctypes, time; time.sleep(1)"
    command = ["sh", "-c", f"{sys.executable} -c '{code}'; true"]
    found = told(tmp_path, sys.executable, None, command=command, judge_exit=True)
    assert any(Path(path).name.startswith("_ctypes") for path in found.mapped)


def test_a_record_is_read_with_its_quotes_and_without_what_the_installer_wrote() -> None:
    lines = ["a.py,sha256=x,10", '"b,c.py",sha256=y,3', "a.pyc,sha256=z,1", "a-1.dist-info/RECORD,,", "empty.py,,0"]
    assert record("\n".join(lines)) == {"a.py": "sha256=x", "b,c.py": "sha256=y", "empty.py": ""}
