"""The scenarios, images and examples that are shipped: whole, in step with each other, and read without importing."""

import ast
import re
import runpy
import sys
from pathlib import Path
from unittest.mock import MagicMock, call

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted([*ROOT.glob("scenarios/*.py"), *ROOT.glob("examples/scenarios/*.py")])
MATRICES = sorted(ROOT.glob("examples/*.yaml"))
MEASURED = ("tensorflow", "numpy", "multidict", "regex", "pandas", "orjson", "onnxruntime")


def name(path):
    return path.relative_to(ROOT).as_posix()


def definitions(path):
    """The top-level names of a script and what they are bound to."""
    found = {}
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.FunctionDef):
            found[statement.name] = statement
        if isinstance(statement, ast.Assign):
            found.update({target.id: statement.value for target in statement.targets if isinstance(target, ast.Name)})
    return found


def allowed_params(path):
    value = definitions(path).get("PARAMS")
    return {} if value is None else ast.literal_eval(value)


def defaults(setup):
    """Parameter -> its default, of those that have one."""
    positional = [argument.arg for argument in setup.args.args]
    given = positional[len(positional) - len(setup.args.defaults) :]
    pairs = [*zip(given, setup.args.defaults, strict=True)]
    pairs += [(a.arg, d) for a, d in zip(setup.args.kwonlyargs, setup.args.kw_defaults, strict=True) if d is not None]
    return dict(pairs)


def read(matrix):
    return yaml.safe_load(matrix.read_text())


def scenarios(matrix):
    return read(matrix)["scenarios"].items()


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_a_scenario_has_a_title_and_a_setup(script):
    title = ast.get_docstring(ast.parse(script.read_text())).split("\n")[0]
    assert title[-1] in ".;"
    assert len(title) <= 120
    assert isinstance(definitions(script)["setup"], ast.FunctionDef)


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_params_are_lists_of_parameters_of_setup_that_allow_the_default(script):
    setup = definitions(script)["setup"]
    accepted = {argument.arg for argument in [*setup.args.args, *setup.args.kwonlyargs]}
    default = defaults(setup)
    for param, values in allowed_params(script).items():
        assert param in accepted
        assert isinstance(values, list)
        assert len(values) == len(set(values)) > 1
        if param in default and isinstance(default[param], ast.Constant):
            assert default[param].value in values


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_what_is_measured_is_imported_in_setup_only(script):
    for statement in ast.parse(script.read_text()).body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in statement.names} | {getattr(statement, "module", None)}
            assert names.isdisjoint(MEASURED)


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_the_syntax_is_that_of_python_3_6(script):
    ast.parse(script.read_text(), feature_version=(3, 6))


@pytest.mark.parametrize("matrix", MATRICES, ids=name)
def test_an_example_names_what_is_there(matrix):
    data = read(matrix)
    for series in data["series"].values():
        if "build" in series:
            dockerfile = (matrix.parent / series["build"] / "Dockerfile").read_text()
            assert {series["arg"], *series.get("args", {})} <= set(re.findall(r"^ARG (\w+)", dockerfile, re.M))
    for _, scenario in scenarios(matrix):
        assert (matrix.parent / scenario["script"]).is_file()
        assert set(scenario.get("series", [])) <= set(data["series"])


@pytest.mark.parametrize("matrix", MATRICES, ids=name)
def test_an_example_gives_params_that_its_script_allows(matrix):
    for _, scenario in scenarios(matrix):
        allowed = allowed_params(matrix.parent / scenario["script"])
        for param, values in scenario.get("params", {}).items():
            assert set(values if isinstance(values, list) else [values]) <= set(allowed[param])


def test_quickstart_and_docker_differ_in_the_engine_only():
    process, docker = (read(ROOT / f"examples/{each}.yaml") for each in ("quickstart", "docker"))
    assert process.pop("hosts") == {"here": {"engine": "process"}}
    assert docker.pop("hosts") == {"here": {"engine": "docker"}}
    assert process == docker


def test_every_scenario_and_example_is_in_the_docs():
    scenarios_page = (ROOT / "docs/scenarios.md").read_text()
    examples_page = (ROOT / "docs/examples.md").read_text()
    assert all(f"(../{name(path)})" in scenarios_page for path in ROOT.glob("scenarios/*.py"))
    assert all(f"(../{name(path)})" in examples_page for path in MATRICES)


# ---------------------------------------------------------------- signal_ops, without TensorFlow

SIGNAL_OPS = ROOT / "scenarios/signal_ops.py"


@pytest.fixture
def tensorflow(monkeypatch):
    """Stands where TensorFlow would be imported from, and notes what is called."""
    fake = MagicMock(name="tensorflow", __version__="1.15.5")
    monkeypatch.setitem(sys.modules, "tensorflow", fake)
    return fake


def steps(count, **params):
    step = runpy.run_path(str(SIGNAL_OPS))["setup"](**params)
    for _ in range(count):
        step()


@pytest.mark.parametrize("op", allowed_params(SIGNAL_OPS)["op"])
def test_signal_ops_builds_its_op_once_and_runs_it_each_step(tensorflow, op):
    steps(5, op=op)
    transform = getattr(tensorflow.signal, op)
    transform.assert_called_once()
    runs = tensorflow.compat.v1.Session.return_value.run.call_args_list
    assert runs.count(call(transform.return_value.op, None)) == 5


@pytest.mark.parametrize("source", allowed_params(SIGNAL_OPS)["input"])
def test_signal_ops_feeds_numpy_only(tensorflow, source):
    steps(1, input=source)
    *_, feed = tensorflow.compat.v1.Session.return_value.run.call_args.args
    assert (feed is not None) == (source == "numpy")


@pytest.mark.parametrize(("rounds", "count", "resets"), [(1, 500, 0), (2, 100, 0), (2, 101, 1), (2, 500, 1)])
def test_signal_ops_begins_a_second_round_once(tensorflow, rounds, count, resets):
    steps(count, rounds=rounds)
    v1 = tensorflow.compat.v1
    assert v1.reset_default_graph.call_count == v1.Session.return_value.close.call_count == resets
    assert v1.get_default_graph.return_value.finalize.call_count == resets + 1


@pytest.mark.parametrize(("version", "path"), [("1.15.5", "native"), ("2.16.2", "tf.compat.v1")])
def test_signal_ops_says_which_path_it_took(tensorflow, capsys, version, path):
    tensorflow.__version__ = version
    steps(0)
    assert capsys.readouterr().out == f"TensorFlow {version}: graph mode, {path}\n"
