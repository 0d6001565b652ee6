"""The contents of a good matrix file after loading."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import TypeAdapter

from harness import doors
from harness.errors import MatrixError
from harness.matrix import load_matrix
from harness.matrix.context import Context
from harness.matrix.read_hosts import _owners
from harness.matrix.read_series import RUNNING_PYTHON
from harness.matrix.shape import check_shape, schema
from harness.model import Build, EngineKind, EngineSettings, Install, Matrix, Pull, Scenario, Variant, Where, forms
from harness.model.engines import GROUP, installed_engines, known_engines
from harness.model.file_keys import WrittenLimits
from harness.model.forms import Given
from harness.plan.cells import select
from tests.unit.matrix.conftest import GOOD, FakeIndex, Load

ROOT = Path(__file__).parents[3]


def versions(matrix: Matrix, series: str) -> list[str]:
    return [image.version for entry in matrix.series if entry.name == series for image in entry.images]


def with_series(text: str) -> str:
    return f"version: 1\nseries:\n  s: {text}\nscenarios:\n  x: {{command: [a]}}\n"


def with_scenario(text: str) -> str:
    return f"version: 1\nseries:\n  s: {{images: [a]}}\nscenarios:\n  x: {{{text}}}\n"


def test_good_file(load: Load) -> None:
    matrix = load(GOOD)
    tags, wheel, numpy = matrix.series
    assert (matrix.name, matrix.path) == ("matrix", Path("matrix.yaml"))
    assert tags.baseline == "20.12"
    assert tags.images[1].source == Pull(reference="registry.local/tensorflow:22.12")
    assert str(tags.images[1].where) == "matrix.yaml:5: series.tags.tags[1]"
    assert wheel.images[0].source == Build(context=Path("image"), args=(("WHEEL", "1.15.4+nv20.12"),))
    assert numpy.images[0].source == Install(
        base=f"python:{RUNNING_PYTHON}-slim-bookworm", python=None, packages=("numpy==2.0.0", "six==1.16.0")
    )
    assert [(host.name, host.engine, host.gpus) for host in matrix.hosts] == [
        ("here", "docker", "none"),
        ("venv", "process", "none"),
    ]
    signal, tool = matrix.scenarios
    assert (signal.title, signal.script) == ("One transform a step.", Path("signal.py"))
    assert signal.params == (("op", ("rfft", "fft")), ("n", (1,)))
    assert (signal.limits.leak_kib_per_step, signal.memory_bytes, signal.timeout_s) == (0.5, 8 << 30, 1200.0)
    assert tool.command == ("true-of-it", "--fast")
    assert matrix.exclude == ({"series": "tags", "scenario": "tool", "why": "too long"},)


def test_versions_stay_as_they_are_written(load: Load) -> None:
    matrix = load(with_series("{repository: a/b, tags: [1.9, 1.10, 2.0, 0x10, 2024-01-01, 1e3, on]}"))
    assert versions(matrix, "s") == ["1.9", "1.10", "2.0", "0x10", "2024-01-01", "1e3", "on"]


def test_only_true_and_false_are_booleans(load: Load) -> None:
    values = "[on, yes, no, true, 010, 0o10, 1.50, ~, 2024-01-01]"
    matrix = load(with_scenario(f"command: ['{{p}}'], params: {{p: {values}}}"))
    assert matrix.scenarios[0].params == (("p", ("on", "yes", "no", True, 10, 8, 1.5, None, "2024-01-01")),)
    assert all(type(value) in (str, bool, int, float, type(None)) for value in matrix.scenarios[0].params[0][1])


def test_without_hosts_it_is_this_machine_without_containers(load: Load) -> None:
    (host,) = load(with_series("{images: [a]}")).hosts
    assert (host.name, host.engine, host.gpus) == ("local", "process", "none")


def test_images_as_list_and_as_mapping(load: Load) -> None:
    by_name = load(with_series("{images: {old: 'a/b:1', new: 'a/b@sha256:0'}}")).series[0].images
    assert [(image.version, image.source.reference) for image in by_name] == [("old", "a/b:1"), ("new", "a/b@sha256:0")]
    assert versions(load(with_series("{images: ['a/b:1', 'c']}")), "s") == ["a/b:1", "c"]
    digest = f"sha256:{'0' * 64}"
    (image,) = load(with_series(f"{{repository: a/b, tags: ['{digest}']}}")).series[0].images
    assert image.source == Pull(reference=f"a/b@{digest}")


def test_settings_of_images(load: Load) -> None:
    text = "{images: [a], entrypoint: false, environment: [A=1, B=x=y, C=]}"
    (image,) = load(with_series(text)).series[0].images
    assert not image.keep_entrypoint
    assert image.environment == (("A", "1"), ("B", "x=y"), ("C", ""))
    (image,) = load(with_series("{images: [a], environment: {A: 1.10, B: ''}}")).series[0].images
    assert image.environment == (("A", "1.10"), ("B", ""))


def test_settings_of_scenarios(load: Load) -> None:
    text = (
        "command: [a, 1.10, ''], step_pattern: 'step \\d+$', judge: exit, steps: {first: 64, budget: 128},"
        "timeout: 1h30m, shm_size: 64MB, ulimits: {nofile: 1024, memlock: {soft: 5, hard: -1}}, network: true,"
        "cap_add: [SYS_PTRACE], environment: {A: b}, files: [signal.py, image],"
        "limits: {slowdown: 5%, step_time: 0.2, setup: bad}"
    )
    (scenario,) = load(with_scenario(text)).scenarios
    assert scenario.command == ("a", "1.10", "")
    assert (scenario.step_pattern, scenario.limits.exit_only) == ("step \\d+$", True)
    assert scenario.steps.looks() == (64, 128)
    assert (scenario.timeout_s, scenario.shm_bytes) == (5400.0, 64_000_000)
    assert scenario.ulimits == (("nofile", 1024, 1024), ("memlock", 5, -1))
    assert (scenario.network, scenario.cap_add, scenario.environment) == (True, ("SYS_PTRACE",), (("A", "b"),))
    assert scenario.files == (Path("signal.py"), Path("image"))
    assert (scenario.limits.slowdown, scenario.limits.of("step_time"), scenario.limits.setup_bad) == (0.05, 0.2, True)


def test_variables_in_texts(load: Load) -> None:
    text = with_series("{images: ['${BASE:-debian}'], environment: {A: $HOME, B: $$x, C: 'a$', D: '${X-}'}}")
    (image,) = load(text, environ={"HOME": "/root", "BASE": ""}).series[0].images
    assert image.source == Pull(reference="debian")
    assert image.environment == (("A", "/root"), ("B", "$x"), ("C", "a$"), ("D", ""))


def test_numbers_and_booleans_from_variables(load: Load) -> None:
    text = with_scenario(
        "command: [a], network: '${NET:-true}', steps: {budget: '${BUDGET:-1000}'}, timeout: '${T:-90}'"
    )
    (scenario,) = load(text).scenarios
    assert (scenario.network, scenario.steps.budget, scenario.timeout_s) == (True, 1000, 90.0)


def test_aliases_and_merge_keys(load: Load) -> None:
    text = """\
version: 1
series: {s: {images: [a]}}
scenarios:
  x: &x {command: [a], timeout: 1m, steps: &steps {first: 100}}
  y: {<<: *x, timeout: 2m, steps: *steps}
  z: {<<: [{timeout: 5m}, *x]}
"""
    x, y, z = load(text).scenarios
    assert (y.command, y.timeout_s, y.steps) == (x.command, 120.0, x.steps)
    assert (z.command, z.timeout_s) == (x.command, 300.0)


def test_name_is_safe_for_a_folder(load: Load) -> None:
    assert load(f"name: ../a b/ü\n{GOOD}").name == "a-b-ü"
    assert load(f"name: 1.10\n{GOOD}").name == "1.10"
    assert load(f"name: ../..\n{GOOD}").name == "matrix"


def test_exclude_says_where_it_is_without_a_why(load: Load) -> None:
    matrix = load(GOOD.replace(', why: "too long"', ", image: 20.12"))
    (rule,) = matrix.exclude
    assert rule == {
        "series": "tags",
        "scenario": "tool",
        "image": "20.12",
        "why": "left out by matrix.yaml:24: exclude[0]",
    }


def test_include_adds_a_variant(load: Load) -> None:
    matrix = load(f"{GOOD}include:\n- {{scenario: signal, op: fft, n: 2}}\n- {{scenario: tool, level: 3}}\n")
    assert matrix.include == ({"scenario": "signal", "op": "fft", "n": 2}, {"scenario": "tool", "level": 3})
    params = "    params: {op: [rfft, fft], n: 1}\n"
    assert load(f"{GOOD.replace(params, '')}include: [{{scenario: signal, op: fft}}]\n").include


def test_a_scenario_that_is_called_by_a_number_gets_its_variant(load: Load) -> None:
    """It was left out silently: 010 is a number, not a name."""
    named = GOOD.replace("\n  tool:", "\n  010:").replace("scenario: tool", "scenario: 010")
    assert "010" in load(named).exclude[0].values()
    matrix = load(f"{named}include: [{{scenario: 010, level: 3}}]\n")
    assert matrix.include == ({"scenario": "010", "level": 3},)
    assert "010 level=3" in {str(row.variant) for row in select(matrix, seed=1).rows}


# ---------------------------------------------------------------- versions and the index


def test_range_takes_the_index_releases_oldest_first(load: Load) -> None:
    index = FakeIndex(yanked=("2.0.1",))
    images = load(with_series("{install: ['numpy=={version}'], versions: '>=2.0'}"), index=index).series[0].images
    assert [(image.version, image.yanked) for image in images] == [("2.0.0", False), ("2.0.1", True), ("2.1.0", False)]
    assert images[0].source.packages == ("numpy==2.0.0",)
    early = load(with_series("{install: ['numpy=={version}'], versions: '>=2.1.0rc1'}"))
    assert versions(early, "s") == ["2.1.0rc1", "2.1.0"]


def test_listed_versions_are_looked_up_once_a_package_and_marked_if_yanked(load: Load) -> None:
    index = FakeIndex(yanked=("2.0.1",))
    matrix = load(GOOD, index=index)
    assert index.asked == ["numpy"]
    assert [image.yanked for image in matrix.series[2].images] == [False, True]


@pytest.mark.parametrize(
    ("tags", "told"),
    [
        (
            "cp37-cp37m-manylinux2010_x86_64",
            'numpy 2.0.1 is not for Python 3.11, only for 3.7; name one with `python: "3',
        ),
        ("cp38.cp39-abi3-manylinux2014_x86_64", ""),
        ("cp37-cp37m-win_amd64", ""),
    ],
)
def test_a_version_for_another_python_only_says_so(load: Load, tags: str, told: str) -> None:
    """The installer named tags, and no option of the harness."""
    index, text = FakeIndex(wheels={"2.0.1": tags}), GOOD.replace("    install:", "    python: 3.11\n    install:")
    if not told:
        assert load(text, index=index), "it fits, or the index says nothing of use"
        return
    with pytest.raises(MatrixError, match=re.escape(told)):
        load(text, index=index)
    in_base = GOOD.replace("    install:", "    base: of-ours:1\n    install:")
    assert load(in_base, index=index), "the base has a Python of its own"


def test_silent_index_stops_a_range_but_not_a_list(load: Load) -> None:
    assert load(GOOD, index=FakeIndex(silent=True))
    with pytest.raises(
        MatrixError, match=r"^matrix\.yaml:3: series\.s\.versions: index\.local does not answer; list the"
    ):
        load(with_series("{install: ['numpy=={version}'], versions: '>=2.0'}"), index=FakeIndex(silent=True))


def test_python_and_base(load: Load) -> None:
    text = "{install: ['numpy=={version}'], versions: [2.0.0], python: 3.10}"
    (image,) = load(with_series(text)).series[0].images
    assert (image.source.python, image.source.base) == ("3.10", "python:3.10-slim-bookworm")
    (image,) = load(with_series(text.replace("python: 3.10", "base: my:1"))).series[0].images
    assert (image.source.python, image.source.base) == (None, "my:1")


def test_harness_base_is_the_base_of_who_names_none(load: Load) -> None:
    """If no registry is reachable, exporting one variable must be enough."""
    text = "{install: ['numpy=={version}'], versions: [2.0.0]}"
    (image,) = load(with_series(text), environ={"HARNESS_BASE": "mine:1"}).series[0].images
    assert image.source.base == "mine:1"


def test_a_command_takes_its_params_by_name(load: Load) -> None:
    """A param that never reaches the program would give two variants of the same thing."""
    (scenario,) = load(with_scenario("command: [a, '--n={n}', '{x}'], params: {n: 3}")).scenarios
    assert Variant(scenario=scenario, params=(("n", 3),)).command == ("a", "--n=3", "{x}")


def test_versions_that_are_no_versions_with_a_url(load: Load) -> None:
    text = "{install: ['tool @ https://files.local/{version}.zip'], versions: [main, 4f2a]}"
    assert versions(load(with_series(text)), "s") == ["main", "4f2a"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("tests.players.local_engine:KIND", ""),
        (
            "no.such.module:KIND",
            "cannot be imported: ModuleNotFoundError: No module named 'no'; install another version",
        ),
        ("os:sep", "engine theirs: is no EngineKind, but a str; install another version of the package, or remove it"),
    ],
)
def test_an_installed_package_may_bring_an_engine(
    load: Load, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, value: str, problem: str
) -> None:
    """An engine that cannot be used says why, and breaks no other."""
    brought = EntryPoint(name="theirs", value=value, group=GROUP)
    installed = doors.installed(GROUP)
    monkeypatch.setattr(doors, "installed", lambda group: {**installed, "theirs": brought})
    for cache in (known_engines, installed_engines):
        cache.cache_clear()
        request.addfinalizer(cache.cache_clear)
    text = GOOD.replace("engine: docker", "engine: theirs")
    assert load(GOOD).hosts[0].engine == "docker"
    if problem:
        with pytest.raises(MatrixError, match=problem):
            load(text)
    else:
        assert (load(text).hosts[0].engine, load(text).hosts[0].can.makes_environments) == ("theirs", True)


@dataclass(frozen=True, kw_only=True)
class Asked(EngineSettings):
    """What hosts of an installed engine ask for."""

    wait_s: Annotated[forms.Duration, forms.key("wait")] = 60.0


def test_a_key_of_an_installed_engine_has_the_name_that_the_engine_gives_it(
    load: Load, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """`hosts.here.wait: unknown key; did you mean 'wait'?` was said of it."""
    monkeypatch.setitem(known_engines(), "theirs", EngineKind(opener="", settings=Asked))
    request.addfinalizer(_owners.cache_clear)
    _owners.cache_clear()
    assert load(GOOD.replace("engine: docker", "engine: theirs, wait: 2m")).hosts[0].settings == Asked(wait_s=120.0)
    with pytest.raises(MatrixError, match="wait: is for engine: theirs, not docker; remove it"):
        load(GOOD.replace("engine: docker", "engine: docker, wait: 2m"))


# ---------------------------------------------------------------- schema, docs, and the file at the top


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema of a mapping with known keys."""
    if isinstance(value, dict) and isinstance(value.get("properties"), dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings(inner)


def test_every_key_is_described_and_in_the_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of an engine that a developer has installed beside the harness are not the harness's."""
    text = (ROOT / "docs/matrix.md").read_text(encoding="utf-8")
    own = {name: kind for name, kind in known_engines().items() if kind.opener.startswith("harness.")}
    monkeypatch.setattr("harness.model.known_engines", lambda: own)
    told = schema.__wrapped__()
    keys = [(key, value) for entry in mappings(told) for key, value in entry["properties"].items()]
    definitions = told["$defs"]
    assert len(keys) > 50
    assert [key for key, _ in keys if f"`{key}`" not in text] == []
    described = (
        value.get("description") or definitions[value["$ref"].split("/")[-1]]["description"] for _, value in keys
    )
    assert all(described)


def test_examples_in_the_docs_are_of_the_right_shape() -> None:
    text = (ROOT / "docs/matrix.md").read_text(encoding="utf-8")
    examples = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    least = {"version": 1, "series": {"s": {"images": ["a"]}}, "scenarios": {"x": {"command": ["a"]}}}
    assert len(examples) >= 6
    for example in examples:
        data = {**least, **yaml.safe_load(example)}
        assert check_shape(Context(file="m.yaml", folder=Path(), data=data))


def test_defaults_in_the_schema_are_those_of_the_records() -> None:
    definitions = schema()["$defs"]
    scenario = definitions["Scenario"]["properties"]
    own = {"name": "x", "where": Where(file="", line=0, key="")}
    for shape, properties, filled in ((WrittenLimits, scenario["limits"]["properties"], {}), (Scenario, scenario, own)):
        written = {key: value["default"] for key, value in properties.items() if "default" in value}
        assert written
        data = {**written, **{name: Given(value) for name, value in filled.items()}}
        assert TypeAdapter(shape).validate_python(data, context=Path()) == shape(**filled)


def test_matrix_at_the_top_of_the_repository_loads() -> None:
    matrix = load_matrix(ROOT / "matrix.yaml", environ={}, index=FakeIndex())
    assert [series.name for series in matrix.series] == ["ngc", "wheel"]


# ---------------------------------------------------------------- a cluster


def test_named_nodes_are_hosts_of_their_own_and_the_hosts_name_means_all_of_them(load: Load) -> None:
    """Two nodes with the same card distinguish the card from the host."""
    text = GOOD.replace("here: {engine: docker}", "here: {engine: slurm, nodes: [gpu01, gpu02], select: {gres: gpu:1}}")
    matrix = load(text.replace("    memory: 8GiB", "    memory: 8GiB\n    hosts: [here, venv]"))
    assert [host.name for host in matrix.hosts] == ["here.gpu01", "here.gpu02", "venv"]
    first = matrix.hosts[0].settings
    assert first is not None
    assert (first.node, first.select, first.hold.exclusive, first.hold.time_s) == (
        "gpu01",
        (("gres", "gpu:1"),),
        True,
        4 * 3600,
    )
    assert matrix.scenarios[0].hosts == ("here.gpu01", "here.gpu02", "venv")


def test_a_cluster_s_images_are_beside_the_matrix_or_where_it_says(load: Load) -> None:
    matrix = load(
        GOOD.replace("{engine: docker}", "{engine: slurm, images: /shared/harness, hold: {exclusive: false}}")
    )
    asked = matrix.hosts[0].settings
    assert asked is not None
    assert (str(asked.images), asked.hold.exclusive, asked.node) == ("/shared/harness", False, None)


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "matrix.yaml")
    with pytest.raises(MatrixError, match="version: is missing"):
        load_matrix(tmp_path / "matrix.yaml", environ={})
