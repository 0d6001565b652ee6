"""The shipped scenarios, images and examples: complete, consistent with each other, and read without importing them."""

import ast
import random
import re
import runpy
import sys
from pathlib import Path
from unittest.mock import MagicMock, call
from xml.etree import ElementTree

import pytest
import yaml

from harness.matrix import load_matrix
from tests.unit.matrix.conftest import FakeIndex

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted([*ROOT.glob("scenarios/*.py"), *ROOT.glob("examples/scenarios/*.py")])
MATRICES = [each for place in ("", "tutorial/", "narrow/") for each in sorted(ROOT.glob(f"examples/{place}*.yaml"))]
MEASURED = {
    "tensorflow", "torch", "cupy", "numpy", "cv2", "skimage", "multidict", "regex", "pandas", "orjson", "onnxruntime",
}  # fmt: skip


def name(path):
    return path.relative_to(ROOT).as_posix()


def definitions(path):
    """Return the top-level names of a script and their values."""
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
    """Return parameter -> default, for those that have one."""
    positional = [argument.arg for argument in setup.args.args]
    given = positional[len(positional) - len(setup.args.defaults) :]
    pairs = [*zip(given, setup.args.defaults, strict=True)]
    pairs += [(a.arg, d) for a, d in zip(setup.args.kwonlyargs, setup.args.kw_defaults, strict=True) if d is not None]
    return dict(pairs)


def read(matrix):
    return yaml.safe_load(matrix.read_text())


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_a_scenario_has_a_title_and_a_setup_and_runs_on_python_3_6(script):
    """What is measured is imported in setup only."""
    tree = ast.parse(script.read_text(), feature_version=(3, 6))
    title = ast.get_docstring(tree).split("\n")[0]
    assert title[-1] in ".;"
    assert len(title) <= 120
    assert isinstance(definitions(script)["setup"], ast.FunctionDef)
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            assert MEASURED.isdisjoint({alias.name for alias in statement.names} | {getattr(statement, "module", "")})


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


@pytest.mark.parametrize("matrix", MATRICES, ids=name)
def test_an_example_is_a_matrix_that_can_be_swept(matrix):
    """Two of them were refused: their steps had as much time as the whole launch."""
    index = FakeIndex(packages={"onnxruntime": ("1.19.2", "1.22.1")}, silent=matrix.name != "history.yaml")
    assert load_matrix(matrix, environ={}, index=index).scenarios


def test_quickstart_and_docker_differ_in_the_engine_only():
    process, docker = (read(ROOT / f"examples/{each}.yaml") for each in ("quickstart", "docker"))
    assert process.pop("hosts") == {"local": {"engine": "process"}}
    assert docker.pop("hosts") == {"local": {"engine": "docker"}}
    assert process == docker


def test_every_scenario_and_example_is_in_the_docs():
    scenarios_page = (ROOT / "docs/scenarios.md").read_text()
    examples_page = (ROOT / "docs/examples.md").read_text()
    assert all(f"(../{name(path)})" in scenarios_page for path in ROOT.glob("scenarios/*.py"))
    assert all(f"(../{name(path)})" in examples_page for path in MATRICES)


def test_the_scenario_of_the_docs_is_one(tmp_path):
    """An author begins by copying it."""
    page = (ROOT / "docs/scenarios.md").read_text()
    for language, file in (("python", "table.py"), ("yaml", "table.yaml")):
        (tmp_path / file).write_text(re.search(rf"`{file}`.*?```{language}\n(.*?)```", page, re.DOTALL)[1])
    (scenario,) = load_matrix(tmp_path / "table.yaml", environ={}, index=FakeIndex(silent=True)).scenarios
    assert scenario.title == "Sort a table of random numbers."
    setup = runpy.run_path(str(tmp_path / "table.py"))["setup"]
    for kind in dict(scenario.params)["kind"]:
        setup(rows=1000, kind=kind)()


def test_the_matrix_of_the_tutorial_is_the_file_that_it_runs():
    """A newcomer who types what the page shows must get what the page shows."""
    page = (ROOT / "docs/tutorial.md").read_text()
    shown = re.search(r"```yaml\n(version: 1\n.*?)```", page, re.DOTALL)[1]
    assert shown == (ROOT / "examples/tutorial/train.yaml").read_text().partition("\n")[2]


# ---------------------------------------------------------------- signal_ops, without TensorFlow

SIGNAL_OPS = ROOT / "scenarios/signal_ops.py"


@pytest.fixture
def tensorflow(monkeypatch):
    """Stands in for TensorFlow, and records the calls."""
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


# ---------------------------------------------------------------- arithmetic of the others


def loaded(script):
    return runpy.run_path(str(ROOT / "scenarios" / script))


def test_graph_memory_expects_what_the_story_s_author_reckoned():
    sizes = loaded("graph_memory.py")["expected_bytes"](batch=2)
    assert len(sizes) == 12
    assert sizes["conv1/Conv2D"] == 2 * 1280 * 720 * 64 * 4 == 450 << 20
    assert sizes["conv3/Conv2D"] == sizes["conv1/Conv2D"] // 4  # half as wide and half as high
    assert sizes["conv6/Conv2D"] == 2 * 320 * 180 * 256 * 4
    assert sizes["conv12/Conv2D"] == 2 * 1280 * 720 * 3 * 4


def test_mixing_is_0_in_order_and_1_at_random():
    module = loaded("read_order.py")
    numbers = list(range(10000))
    assert module["mixing"](numbers) == 0
    assert module["mixing"](random.Random(1).sample(numbers, len(numbers))) == pytest.approx(1, abs=0.02)


def test_the_plot_of_the_order_is_an_image():
    module = loaded("read_order.py")
    module["LAST_ORDER"][:] = range(10000)
    image = ElementTree.fromstring(module["artifacts"]()["order.svg"])
    (path,) = image.iter("{http://www.w3.org/2000/svg}path")
    assert path.get("d").startswith("M0 500h2")
    assert path.get("d").count("M") == 1000


def test_the_model_written_by_hand_has_the_entries_and_names():
    model = loaded("parts/onnx_models.py")["copies"](5, {"key": "value"})
    assert model.count(b"Identity") == 5
    assert b"\x72\x0c\n\x03key\x12\x05value" in model  # field 14 of ModelProto: key and value


def test_the_model_of_one_node_has_its_shape_and_attribute():
    model = loaded("parts/onnx_models.py")["normalisation"]((1, 32, 56), size=5)
    assert model.count(b"LRN") == 1
    assert b"\n\x04size\x18\x05\xa0\x01\x02" in model  # AttributeProto: name, i, and the type INT
    assert model.count(b"\n\x02\x08\x01\n\x02\x08\x20\n\x02\x08\x38") == 2  # the dimensions, of image and result


@pytest.mark.parametrize(("readers", "calls"), [(1, 1), (4, 4), (8, 4)])
def test_an_interleave_has_no_more_readers_than_files(readers, calls):
    """A sampled pair has half of the files in each dataset: TensorFlow refused eight readers, and looked guilty."""
    tf = MagicMock()
    loaded("tfrecord_pipeline.py")["records"](tf, "interleave", ["a", "b", "c", "d"], readers, False)
    files = tf.data.Dataset.from_tensor_slices.return_value
    assert files.interleave.call_args.kwargs["num_parallel_calls"] == calls
