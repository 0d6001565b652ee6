"""A hook describes itself, and an installed package may bring one."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from harness.agent.scenario import hooks
from harness.model import Scenario, Variant, Where, adds_to_memory, step_kinds, words_for_steps
from harness.model.file_keys import AnyStepsAre
from harness.run.trial.payload import agent_files, compiled_agent, pack
from tests.agent.driver import MARKER, Agent

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Example: a hook")[1]
ENTRY = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)[0]
HOOK = (ROOT / "tests/agent/looplib_hook.py").read_text(encoding="utf-8")
LOOPLIB = "class Loop(object):\n    def advance(self): pass\n"
PROGRAM = "from looplib.core import Loop\nloop = Loop()\nfor _ in range(60): loop.advance()\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Install the package of the guide, whose hook is the guide's example, or the text that a test asks for."""
    site = tmp_path / "site"
    (site / "my_package").mkdir(parents=True)
    (site / "my_package" / "__init__.py").touch()
    (site / "my_package" / "looplib_hook.py").write_text(getattr(request, "param", HOOK))
    (site / "my_package-1.dist-info").mkdir()
    (site / "my_package-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    points = re.sub(r'\[project.entry-points."(.*)"\]', r"[\1]", ENTRY).replace('"', "")
    (site / "my_package-1.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "my_package", raising=False)
    caches = (step_kinds.installed_hooks, compiled_agent)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.smoke
@pytest.mark.parametrize("steps_are", ["auto", "looplib"])
@pytest.mark.usefixtures("installed")
def test_the_hook_of_an_installed_package_counts_the_steps(tmp_path: Path, python: str, steps_are: str) -> None:
    """A user's own framework needed a change of the harness."""
    assert "looplib" in words_for_steps()
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    (tmp_path / "looplib").mkdir()
    (tmp_path / "looplib" / "core.py").write_text(LOOPLIB)
    scenario = Scenario(
        name="s", where=Where(file="m", line=1, key="k"), files=(tmp_path / "looplib",),
        program=program, steps_are=steps_are,
    )  # fmt: skip
    root = tmp_path / "root"
    packed = pack(Variant(scenario=scenario, params=()), extras={"looks": [50], "marker": MARKER})
    for name, content in packed.contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    with Agent(root, python=python) as agent:
        told = agent.finish()
    assert (told.one("ready")["step_kind"], told.done["last_step"]) == ("looplib", 50)


@pytest.mark.parametrize("installed", ["from no_such import thing\n", "STEPS = 1 / 0\n"], indirect=True)
@pytest.mark.usefixtures("installed")
def test_a_broken_hook_breaks_no_sweep_and_is_named_to_whoever_asks_for_it() -> None:
    """It was left out without a word, or ended every command with a traceback."""
    assert words_for_steps() == ("auto", *hooks.KINDS)
    assert not [name for name in agent_files() if "installed_" in name]
    told = r"write auto, .*; hook looplib of the package my-package 1: cannot be imported: \w+: .*; install another"
    with pytest.raises(ValidationError, match=told):
        TypeAdapter(AnyStepsAre).validate_python("looplib")


def test_without_such_a_package_the_agent_is_as_it_is() -> None:
    assert not [name for name in agent_files() if "installed_" in name]
    assert set(words_for_steps()) == {"auto", *hooks.KINDS}


@pytest.mark.parametrize(("kind", "adds"), [("xgboost", True), ("torch", False), ("line", False), (None, False)])
def test_which_steps_add_to_the_memory(kind: str | None, adds: bool) -> None:
    """The trees that boosting keeps were said to leak."""
    assert adds_to_memory(kind) is adds
