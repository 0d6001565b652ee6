"""Imports go in one direction. If this fails, the user loses nothing immediately, but the next reader does."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import harness
from tests.unit import source

ROOT = Path(harness.__file__).parent

# What each part may import, besides itself. `flows` connects the parts; `cli` calls flows and report. What the agent
# and the harness do by one rule is the agent's: the names of results, the form of a request, the killing of processes.
# ROOMS says the same about the subpackages of a part.
BASE = {"model", "errors", "exit_codes"}
ALLOWED = {
    "exit_codes": set(),
    "doors": {"errors"},
    "model": {"exit_codes", "agent", "doors", "masking"},
    "env_files": {"safe_files"},
    "errors": {"exit_codes"},
    "amounts": {"model"},
    "agent": set(),
    "matrix": BASE | {"env_files", "masking", "registry", "package_index", "safe_files"},
    "package_index": BASE | {"registry"},
    "registry": BASE,
    "plan": BASE | {"judge", "matrix", "masking"},
    "atomic_files": BASE | {"masking", "safe_files"},
    "safe_files": BASE,
    "file_locks": set(),
    "run": BASE
    | {"agent", "env_files", "amounts", "atomic_files", "compat", "doors", "file_locks", "judge", "masking", "registry"}
    | {"safe_files", "schedule", "store"},
    "store": BASE | {"atomic_files", "doors", "file_locks", "masking", "safe_files"},
    "history": BASE
    | {"amounts", "atomic_files", "cli", "file_locks", "flows", "judge", "matrix", "plan", "registry", "report"}
    | {"safe_files", "store"},
    "masking": set(),
    "facts": BASE,
    "traces": BASE | {"safe_files", "store"},
    "judge": BASE | {"agent", "amounts", "facts", "masking"},
    "probes": BASE | {"amounts", "cli", "doors", "file_locks", "flows", "plan", "report", "store"},
    "narrow": BASE
    | {"amounts", "cli", "flows", "judge", "masking", "matrix", "plan", "report", "run", "schedule", "store"},
    "schedule": BASE | {"judge"},
    "report": BASE | {"agent", "amounts", "facts", "masking", "safe_files"},
    "compat": BASE,
    "flows": BASE
    | {"matrix", "plan", "registry", "run", "store", "traces", "judge", "schedule", "compat", "doors"}
    | {"amounts", "atomic_files", "facts", "package_index", "masking", "safe_files"},
    "cli": BASE | {"doors", "flows", "masking", "report", "matrix", "plan", "store"},
    "__main__": {"cli"},
    "__init__": set(),
}

# Each subpackage may import those before it, and none after it. "" stands for the files in the part's own folder.
ROOMS = {
    "judge": (
        ("comparable",),
        ("trace",),
        ("comparison",),
        ("launches", "cell"),
        ("history",),
        ("attribution",),
        ("signal_verdicts", "unpaired", "api"),
        ("next",),
        ("row_warnings",),
        ("row",),
        ("halving",),
        ("beside", "run"),
    ),
    "report": (
        ("text",),
        ("blocks",),
        ("added",),
        ("finding_boxes", "version_table", "environment_diff", "document"),
        ("charts",),
        ("exports",),
        ("issue", "html_page", "terminal"),
    ),
    "narrow": (
        ("records",),
        ("words",),
        ("inventory", "evidence", "isolate"),
        ("coupling", "search"),
        ("hybrids", "launches"),
        ("question",),
        ("flow", "results"),
        ("command",),
    ),
    "probes": (
        ("records",),
        ("reading", "tables"),
        ("printed", "results"),
        ("flow",),
        ("command",),
    ),
    "flows": (
        ("context",),
        ("hosts", "estimate", "running_row"),
        ("running",),
        ("pool",),
        ("deciding",),
        ("sweep",),
        ("",),
    ),
}


def part(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Return the parts of the harness that a file imports; outside the agent, always by absolute names."""
    names = _absolute_imports(path, whole=True)
    inside = {name.split(".")[1] for name in names if name.startswith("harness.")}
    return {name for name in inside if (ROOT / name).is_dir() or (ROOT / f"{name}.py").exists()}


@cache
def files() -> dict[str, list[Path]]:
    """Return part -> its files."""
    found = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        found[part(path)].append(path)
    return found


def test_every_part_is_listed() -> None:
    assert set(files()) == set(ALLOWED)


@pytest.mark.parametrize("name", ALLOWED)
def test_imports_point_one_way(name: str) -> None:
    """A part that imports backwards ties everything together: it could no longer be tested or replaced alone."""
    for path in files()[name]:
        beyond = imported(path) - {name} - ALLOWED[name]
        assert not beyond, f"{path.relative_to(ROOT)} imports {sorted(beyond)}"


@pytest.mark.parametrize("whole", ROOMS)
def test_imports_between_rooms_point_one_way(whole: str) -> None:
    """A reader who changes one subpackage needs to read those before it, and none after it."""
    order = {room: place for place, rooms in enumerate(ROOMS[whole]) for room in rooms}
    for path in sorted((ROOT / whole).rglob("*.py")):
        if path.name == "__init__.py":
            continue
        own = _room(f"harness.{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}", whole, order)
        for name in _absolute_imports(path, whole=True):
            if name.startswith(f"harness.{whole}."):
                other = _room(name, whole, order)
                assert order[other] <= order[own], f"{path.relative_to(ROOT)} ({own}) imports {name} ({other})"


def _room(name: str, whole: str, order: dict[str, int]) -> str:
    """Return the longest subpackage name with which the module's name begins."""
    inside = name.removeprefix(f"harness.{whole}.")
    known = [room for room in order if room and f"{inside}.".startswith(f"{room}.")]
    return max(known, key=len, default="")


def test_every_part_is_told_of() -> None:
    """A reader looks in docs/architecture.md for the purpose of a folder."""
    table = (ROOT.parent / "docs/architecture.md").read_text().split("\n## ", 1)[0]
    told = {
        name for line in table.splitlines() if line.startswith("| `") for name in line.split("|")[1].split("`")[1::2]
    }
    assert told == {name for name in ALLOWED if not name.startswith("__")}


def test_the_agent_imports_nothing_of_ours() -> None:
    """It runs inside images where the harness is not installed."""
    for path in (ROOT / "agent").rglob("*.py"):
        assert "harness" not in {name.split(".")[0] for name in _absolute_imports(path)}, path


def test_relative_imports_are_the_agent_s_alone() -> None:
    """The check above would miss them; the agent needs them, because it has another name in the container."""
    for path in set(ROOT.rglob("*.py")) - set((ROOT / "agent").rglob("*.py")):
        levels = [node.level for node in source.nodes(path, ast.ImportFrom)]
        assert not any(levels), path


def test_no_file_of_the_agent_imports_itself_by_way_of_others() -> None:
    """Imports inside functions count too: a reader of one file would have to read all files of the circle."""
    modules = {_module(path): path for path in (ROOT / "agent").rglob("*.py")}
    imports = {name: _relative_imports(path, name, set(modules)) - {name} for name, path in modules.items()}
    assert _in_circles(imports) == []


def _relative_imports(path: Path, name: str, modules: set[str]) -> set[str]:
    """Return the files that a file of the agent imports anywhere: a package only if a name of its own is imported."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in source.nodes(path, ast.ImportFrom):
        if node.level:
            base = ".".join(filter(None, (package.rsplit(".", node.level - 1)[0], node.module)))
            found |= {inner if (inner := f"{base}.{alias.name}") in modules else base for alias in node.names}
    return found


def _in_circles(imports: dict[str, set[str]]) -> list[str]:
    """Return the modules that import themselves by way of others, or import one that does."""
    done: set[str] = set()
    while free := {name for name, others in imports.items() if name not in done and others <= done}:
        done |= free
    return sorted(imports.keys() - done)


def _absolute_imports(path: Path, *, whole: bool = False) -> set[str]:
    """Return the modules that a file imports; `whole`: with the name that is imported from each."""
    plain = {alias.name for node in source.nodes(path, ast.Import) for alias in node.names}
    nodes = [node for node in source.nodes(path, ast.ImportFrom) if node.level == 0 and node.module]
    names = {f"{node.module}.{alias.name}" if whole else f"{node.module}" for node in nodes for alias in node.names}
    return plain | names


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def _imported_at_start(path: Path, name: str) -> set[str]:
    """Return the modules that are imported along with a module: not those in functions, or for type checkers only."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in source.tree(path).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return {each for each in found if not package.startswith(each)}


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Such a module can be imported only after some other one, and a command or a benchmark fails at its start."""
    modules = {_module(path): path for path in ROOT.rglob("*.py")}
    imports = {name: _imported_at_start(path, name) & modules.keys() - {name} for name, path in modules.items()}
    assert _in_circles(imports) == []
