"""`harness try`: the matrix that it writes is the one that the user meant, and is readable."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness import exit_codes
from harness.cli import run
from harness.cli.try_ import try_
from harness.errors import InfrastructureError, MatrixError, Undecided, UsageError
from harness.flows import try_ as flow
from harness.judge.trace.counts import judge_counts
from harness.matrix import draft, load_matrix
from harness.matrix.draft import copied
from harness.matrix.draft.job import near_command, steps_of
from harness.matrix.draft.options import OPTIONS, Typed, option_of
from harness.matrix.draft.series import safe
from harness.matrix.programs import read_script
from harness.model import CellRun, End, Install, Limits, Matrix, Pull, Remedy, RunResult, Trace, Trials, Variant
from harness.model.forms import NAME
from harness.model.measured import Facts
from harness.model.servers import LOAD
from harness.registry.bounded_http import RegistrySilent
from harness.registry.image_references import in_range
from harness.run.trial.payload import pack
from harness.store import RunDirectory
from tests.players import build
from tests.players.trials import changed
from tests.unit.matrix.conftest import FakeIndex

NOTHING = Typed(folder=Path())
PROGRAM = "import model\nfrom parts import loss\nimport torch\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A typical user's folder: a program, its module and package, a configuration, and unrelated data."""
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "model.py").write_text("import layers\n")
    (tmp_path / "layers.py").touch()
    (tmp_path / "unrelated.py").touch()
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "loss.py").touch()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "small.yaml").touch()
    return tmp_path


def job(
    folder: Path, *words: str, has_image: bool = True, installed: frozenset[str] = frozenset(), **more: Any
) -> draft.DraftJob:
    return draft.job_of(Typed(folder=folder, command=words, **more), has_image=has_image, installed=installed)


def series(*words: str, folder: Path = Path("/nowhere"), **more: Any) -> draft.DraftSeries:
    return draft.series_of(Typed(folder=folder, versions=words, **more))


def draft_of(folder: Path, *words: str, of: tuple[str, ...] = ("a:1", "a:2"), **more: Any) -> draft.Draft:
    return draft.Draft(typed=NOTHING, series=series(*of), job=job(folder, *words, **more))


def read(matrix: Path) -> Matrix:
    return load_matrix(matrix, environ={}, index=FakeIndex(silent=True))


def drafted(folder: Path, versions: tuple[str, ...], *words: str, files: tuple[str, ...] = ()) -> Matrix:
    typed = Typed(folder=folder, made_by=("harness", "try", *versions, "--", *words))
    made = draft.Draft(typed=typed, series=series(*versions, folder=folder), job=job(folder, *words, files=files))
    return read(flow.write(made, out=folder / "reports"))


def only_launch(**fields: Any) -> RunResult:
    """Return a run whose only launch has these fields."""
    result = build.quickstart()
    first, *_ = result.cells
    return replace(result, cells=(replace(first, trials=(changed(first.trials[0], **fields),)),))


# ---------------------------------------------------------------- versions


def test_tags_of_one_repository_are_told_by_their_tags(folder: Path) -> None:
    matrix = drafted(folder, ("host:5000/team/app:2.9", "host:5000/team/app:2.10"), "python", "train.py")
    (one,) = matrix.series
    assert (one.name, [image.version for image in one.images]) == ("app", ["2.9", "2.10"])
    assert [image.source for image in one.images] == [
        Pull(reference=f"host:5000/team/app:{tag}") for tag in ("2.9", "2.10")
    ]
    assert matrix.hosts[0].engine == "docker"


@pytest.mark.parametrize("words", [("one:1", "two:1"), ("app@sha256:" + "a" * 64, "app@sha256:" + "b" * 64)])
def test_other_images_keep_their_whole_names(words: tuple[str, ...], folder: Path) -> None:
    (one,) = drafted(folder, words, "python", "train.py").series
    assert [image.version for image in one.images] == list(words)


def test_packages_need_no_engine(folder: Path) -> None:
    made = series("torch[opt]==2.5.1", "torch[opt]==2.10.0", beside=["numpy<2"])
    whole = draft.Draft(typed=NOTHING, series=made, job=job(folder, "python", "train.py"))
    matrix = read(flow.write(whole, out=folder))
    sources = [image.source for image in matrix.series[0].images]
    assert [source.packages for source in sources if isinstance(source, Install)] == [
        ("torch[opt]==2.5.1", "numpy<2"), ("torch[opt]==2.10.0", "numpy<2"),
    ]  # fmt: skip
    assert matrix.hosts[0].engine == "process"


@pytest.mark.parametrize(
    ("bounds", "specifier"),
    [
        ("2.1..2.6", ">=2.1,<2.7"),
        ("2.1..2.6.0", ">=2.1,<2.6.1"),
        ("2.1..2.6rc1", ">=2.1,<=2.6rc1"),
        ("1!2..1!3", ">=1!2,<1!4"),
    ],
)
def test_a_range_of_releases_needs_no_list(bounds: str, specifier: str) -> None:
    """A user who did not know the versions had to look them up, or to write a matrix file."""
    entry = series(f"torch[opt]=={bounds}", beside=["numpy<2"]).entry
    assert entry == {"install": ["torch[opt]=={version}", "numpy<2"], "versions": specifier}


@pytest.mark.parametrize(
    ("word", "tags"),
    [
        ("team/app:41..44", {"match": "{version}", "from": "41", "to": "44"}),
        ("local:5000/app:24.01-py3..24.10-py3", {"match": "{version}-py3", "from": "24.01", "to": "24.10"}),
        ("app:release-1.2..release-1.10", {"match": "release-{version}", "from": "1.2", "to": "1.10"}),
    ],
)
def test_a_range_of_tags_has_those_that_are_written_alike(word: str, tags: dict[str, str]) -> None:
    """`24.05-vllm-py3` is another product than `24.05-py3`, and no version of it."""
    assert series(word, no_entrypoint=True).entry == {
        "repository": word.rpartition(":")[0], "tags": tags, "entrypoint": False
    }  # fmt: skip
    others = ["latest", "24.05-py3", "24.05.1-py3", "24.05-vllm-py3", "24.05", "24.11-py3"]
    found = in_range(others, match=tags["match"], first=tags["from"], last=tags["to"])
    assert found == (["24.05-py3", "24.05.1-py3"] if "py3" in word else [])


def test_a_range_with_one_version_makes_no_history(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, index = load_matrix, FakeIndex({"six": ["1.15.0", "1.16.0", "1.17.0"]})
    monkeypatch.setattr(flow, "load_matrix", lambda path, environ: load(path, environ=environ, index=index))
    for words, told in (("six==1.17..2", "only 1.17.0 is in this range"), ("six==2..3", "no release of six for")):
        whole = draft.Draft(typed=NOTHING, series=series(words), job=job(folder, "python", "train.py"))
        with pytest.raises(UsageError, match=told):
            flow.check(whole, flow.write(whole, out=folder), {})
        assert not list(folder.glob("*.yaml"))


def test_a_program_that_is_not_python_is_named_as_it_was_typed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was named as the matrix file names it, which nobody typed: `../parts/loss.py:1`."""
    monkeypatch.chdir(folder)
    (folder / "parts" / "loss.py").write_text("def (:\n")
    for out in ("reports", "a/b"):
        assert run(["try", "a:1", "a:2", "--out", out, "--", "python", "parts/loss.py"]) == exit_codes.USAGE
        assert "harness: parts/loss.py:1: is not Python: " in capsys.readouterr().err


def test_a_range_of_tags_that_no_registry_has_names_the_remedy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that were only built here have no registry, and the message named a file that was never seen."""
    silent = RegistrySilent("registry.local: cannot be reached")
    silent.place = "try-train.yaml:8"
    monkeypatch.setattr(flow, "load_matrix", Mock(side_effect=silent))
    whole = draft.Draft(typed=NOTHING, series=series("app:1..3"), job=job(folder, "python", "train.py"))
    with pytest.raises(InfrastructureError, match=r"^registry.local: cannot be reached; or list the tags, of images"):
        flow.check(whole, flow.write(whole, out=folder), {})
    assert not list(folder.glob("*.yaml"))


def test_requirement_files_are_versions(folder: Path) -> None:
    for name in ("old", "new"):
        (folder / f"{name}.txt").write_text(f"numpy==2.{len(name)}\n")
    (one,) = drafted(folder, ("old.txt", "new.txt"), "python", "train.py").series
    assert [image.version for image in one.images] == ["old", "new"]


def test_the_python_of_packages_and_files_can_be_named(folder: Path) -> None:
    """Old versions have wheels for old versions of Python only, and a matrix file was needed to name one."""
    for name in ("old.txt", "a.txt"):
        (folder / name).write_text("six==1.15.0\n")
    assert series("old.txt", "a.txt", folder=folder, python="3.9").entry["python"] == "3.9"
    assert series("pillow==8.0.0", "pillow==8.1.0", python="3.9").entry["python"] == "3.9"
    with pytest.raises(UsageError, match=r"--python 3.9: is for packages and requirement files; images contain"):
        series("app:1", "app:2", python="3.9")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("app:1",), "1 version: give two or more, oldest first"),
        (("torch==2.1..2.4", "torch==2.5.1"), "torch==2.1..2.4: is a range; give it alone, or list the versions"),
        (("torch==2.1+cu118..2.6",), "torch==2.1+cu118..2.6: is not a range of releases"),
        (("six[a]==6.3..6.2",), "six[a]==6.3..6.2: begins with the newer version; put the older one first: 6.2..6.3"),
        (("torch==2.1..",), "torch==2.1..: is not a range of releases; write it as torch==2.1..2.6"),
        (
            ("app:24.01-py3..24.10",),
            "app:24.01-py3..24.10: is not a range of tags; write both tags whole, such",
        ),
        (("old..new",), "old..new: is not a range of tags; write both tags whole"),
        (("app:1", "app:1"), "app:1: appears twice"),
        (("", "app:1"), "a version is empty; give each version"),
        (("app:1", "torch==2.5.1"), "torch==2.5.1: is not of the same kind as app:1"),
        (("old.txt", "new.txt"), "old.txt: no such file in "),
        (("./a.whl", "./b.whl"), "./a.whl: no such file in /nowhere; name a requirement file that exists"),
        (("/gone/a.tar.gz", "/gone/b.tar.gz"), "/gone/a.tar.gz: no such file in /gone; name"),
        (("torch=2.5.1", "torch=2.6.0"), "torch=2.5.1: is not an image; write a version of a package as torch=="),
        (("torch==2.5.1", "numpy==2.0.0"), "numpy: give versions of one package"),
        (
            ("jsonschema==4.17.3", "jsonshema==4.18.0"),
            "jsonshema==4.18.0: is not a version of jsonschema; did you mean jsonschema==4.18.0?",
        ),
        (("numpy", "1.26.4", "2.0.0"), "1.26.4: is not an image; write a version of a package as numpy==1.26.4"),
        (("jsonschema", "jsonschema==4.18.0"), "jsonschema: has no version; write jsonschema==X"),
        (("jsonschema==4.18.0", "jsonschema[format]"), "jsonschema[format]: has no version; write jsonschema[format]="),
    ],
)
def test_versions_that_make_no_history_are_an_error(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        series(*words)


@pytest.mark.parametrize("repository", ["registry.in", "team/me/app.in", "a/b.tar", "team/app.lock", "team/app.toml"])
def test_an_image_whose_name_ends_like_that_of_a_file_is_an_image(repository: str) -> None:
    """`harness try registry.in registry.in:2` said that there is no such file."""
    assert series(repository, f"{repository}:2").entry == {"images": [repository, f"{repository}:2"]}


def test_a_folder_that_may_not_be_listed_is_no_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(UsageError, match=r"\./nwe\.txt: no such file in .*; name a requirement file"):
        series("./nwe.txt", "./new.txt", folder=folder)


def test_the_file_that_was_meant_is_named(folder: Path) -> None:
    """`./nwe.txt` was taken for an image, and `new.txt`, which lies beside it, was not named."""
    (folder / "old.txt").write_text("six==1.15.0\n")
    (folder / "new.txt").write_text("six==1.16.0\n")
    (folder / "own.whl").touch()
    with pytest.raises(UsageError, match=r"\./nwe\.txt: no such file in .*; did you mean './new\.txt'\? name a"):
        series("old.txt", "./nwe.txt", folder=folder)
    with pytest.raises(UsageError, match=r"own\.whl: is a wheel; give a requirement file .* NAME @ file://.*/own\.whl"):
        series("old.txt", "own.whl", folder=folder)


def test_a_package_that_is_not_in_the_index_blames_no_option(folder: Path) -> None:
    """`--with: the package index has no package 'nunpy'` blamed an option that was not given."""
    for versions, beside, option in (("nunpy", (), ""), ("numpy", ("nunpy=={version}",), "--with")):
        typed = (f"{versions}==2.0.0", f"{versions}==2.0.1")
        made = draft.Draft(typed=NOTHING, series=series(*typed, beside=beside), job=job(folder, "python", "train.py"))
        with pytest.raises(MatrixError, match="has no package 'nunpy'") as raised:
            load_matrix(flow.write(made, out=folder / "reports"), environ={}, index=FakeIndex())
        assert [option_of(error.key, NOTHING) for error in raised.value.errors] == [option]


def test_the_first_launch_of_a_server_says_how_long_it_takes(folder: Path) -> None:
    """Nothing was printed for the minute in which the first version answered requests."""
    for request, told in (({"get": "/"}, "requests are sent for at most 1 min"), ({}, "the load generator runs")):
        served = {"request": request} if request else {"client": ["wrk", "{url}"]}
        made = draft_of(folder, "server", "{port}", of=("a==1", "a==2"))
        made = replace(made, job=job(folder, "server", "{port}", served=served))
        text = flow.on_first_launch(made)
        assert f"once it is ready, {told}" in text
        assert text.endswith(f"ends after {'11 min' if request else '20 min'} at the latest")


def test_an_image_whose_entrypoint_is_the_server_can_be_tried(folder: Path) -> None:
    """Only a matrix file could leave the entrypoint out, without which no image of vLLM can be compared."""
    for words in (("app:1", "app:2"), ("a:1", "b:1")):
        assert series(*words, folder=folder, no_entrypoint=True).entry["entrypoint"] is False
    with pytest.raises(UsageError, match="--no-entrypoint: is for images; a==1 has no entrypoint"):
        series("a==1", "a==2", folder=folder, no_entrypoint=True)


def test_a_requirement_beside_images_is_an_error() -> None:
    with pytest.raises(UsageError, match="--with numpy: is for packages"):
        series("app:1", "app:2", beside=["numpy"])


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize("python", ["python", "python3", "python3.11", "/usr/bin/python3"])
def test_a_python_program_is_measured_from_inside(python: str, folder: Path) -> None:
    (scenario,) = drafted(folder, ("app:1", "app:2"), python, "-u", "train.py", "--epochs", "9").scenarios
    assert scenario.program == folder / "train.py"
    assert scenario.args == ("--epochs", "9")
    assert scenario.name == "train"


@pytest.mark.parametrize(
    ("words", "beside"),
    [
        ("python train.py", ""),
        ("python train.py --config=conf/small.yaml conf/small.yaml --out new", "conf"),
        ("sh -c 'python train.py <conf/small.yaml; true'", "conf"),
        ("python -m pytest train.py", ""),
    ],
)
def test_what_a_command_imports_or_names_comes_with_it(words: str, beside: str, folder: Path) -> None:
    """Without the modules, every launch ends with an ImportError; with the whole folder, each copies gigabytes."""
    carried = job(folder, *shlex.split(words), exit_code=words.startswith("sh")).carried
    assert sorted(carried) == sorted(["train.py", "model.py", "layers.py", "parts", *beside.split()])


@pytest.mark.parametrize(
    ("code", "files", "comes"),
    [
        ("import wandb", "wandb/run-1/files/train.py", False),
        ("import torch", "torch/notes.py", False),
        ("import datasets", "datasets/prepare.py", True),
        ("import datasets", "datasets/__init__.py", True),
        ("from nets import resnet", "nets/resnet/model.py", True),
        ("import nets.resnet.model", "nets/resnet/model.py", True),
    ],
)
def test_a_folder_of_data_is_no_module(folder: Path, code: str, files: str, comes: bool) -> None:
    """It was copied into each launch, or refused as too large, with no way to leave it out."""
    (folder / files).parent.mkdir(parents=True)
    (folder / files).touch()
    (folder / "a.py").write_text(code)
    top = files.partition("/")[0]
    assert (
        top in job(folder, "python", "a.py", installed=series("torch==2.5.1", "torch==2.6.0").installs).carried
    ) is comes
    if comes:
        assert top not in job(folder, "python", "a.py", without=(f"{top}/",)).carried
    with pytest.raises(UsageError, match=r"--without modle: is not copied in; did you mean 'model\.py'\?"):
        job(folder, "python", "train.py", without=("modle",))


@pytest.mark.parametrize(
    "newer",
    [
        "def f[T](x): pass", "type A = int", "name = f'{a['b']}'", "class A[T]: pass", "name = t'{a}'",
        "name = rt'{a}'", "try: pass\nexcept OSError, ValueError: pass",
    ],
)  # fmt: skip
def test_syntax_newer_than_the_harness_s_own_python_is_left_to_the_images(folder: Path, newer: str) -> None:
    """It was refused as `is not Python`."""
    with contextlib.suppress(SyntaxError):
        ast.parse(newer)
        pytest.skip("the harness's own Python reads it")
    (folder / "train.py").write_text(f"import model\nfrom parts import loss\n{newer}\ndef step(): pass\n")
    (scenario,) = drafted(folder, ("app:1", "app:2"), "python", "train.py").scenarios
    assert {path.name for path in scenario.files} == {"model.py", "layers.py", "parts"}
    assert steps_of("train:step", job(folder, "python", "train.py"))
    assert read_script("a.py", newer.encode()).accepts is None


def test_a_module_of_the_folder_is_run_as_one(folder: Path) -> None:
    (scenario,) = drafted(folder, ("app:1", "app:2"), "python", "-m", "parts.loss", "-v").scenarios
    assert (scenario.module, scenario.args) == ("parts.loss", ("-v",))
    assert scenario.files == (folder / "parts",)


def test_a_module_that_is_measured_from_outside_is_copied_in_too(folder: Path) -> None:
    """The first launch suggests `--step-pattern`; without its own files every version would then fail."""
    made = job(folder, "python", "-m", "parts.loss", step_pattern="^step")
    assert (made.name, made.carried) == ("parts", ("parts",))
    assert made.entry["command"] == ["python", "-m", "parts.loss"]
    with pytest.raises(UsageError, match=r"--step-pattern \(: is not a regular expression: missing \)"):
        job(folder, "python", "-m", "parts.loss", step_pattern="(")


def test_any_other_command_is_measured_from_outside(folder: Path) -> None:
    (scenario,) = drafted(folder, ("app:1", "app:2"), "python", "-m", "pytest", "train.py").scenarios
    assert scenario.command == ("python", "-m", "pytest", "train.py")
    assert job(folder, "python", "train.py", step_pattern="^step").entry["command"] == ["python", "train.py"]


def test_files_keep_their_places_in_the_folder(folder: Path) -> None:
    """A program in a folder finds its data by its own path (`Path(__file__).parents[1]`), and by paths from where it is
    started."""
    (folder / "src").mkdir()
    (folder / "src" / "run.py").write_text("import near\n")
    (folder / "src" / "run.py").chmod(0o755)
    (folder / "src" / "near.py").touch()
    assert set(job(folder, "python", "src/run.py", "conf/small.yaml").carried) == {"src/run.py", "src/near.py", "conf"}
    for words, files in (
        (("python", "src/run.py", "conf/small.yaml"), ()),
        (("./src/run.py",), ("src/run.py", "conf/small.yaml")),
    ):
        (scenario,) = drafted(folder, ("app:1", "app:2"), *words, files=files).scenarios
        payload = pack(Variant(scenario=scenario))
        assert {"scenario/src/run.py", "scenario/conf/small.yaml"} <= set(payload.files)
        assert (payload.job["program"] or {"path": "scenario/src/run.py"})["path"] == "scenario/src/run.py"


def test_a_file_that_cannot_be_copied_in_is_an_error(folder: Path) -> None:
    for name in ("gone", f"../{folder.name}/conf"):  # it was copied to another place than where the program looks
        with pytest.raises(UsageError, match=f"--file {name}: is not in .*; start in a folder that contains it"):
            job(folder, "true", files=(name,))


def test_large_data_is_not_copied_into_each_launch(folder: Path) -> None:
    with (folder / "conf" / "large.bin").open("wb") as large:
        large.truncate(copied.MOST_BYTES + 1)
    with pytest.raises(UsageError, match=r"conf: more than 256 MiB .*; leave it out with --without conf, or mount it"):
        job(folder, "python", "train.py", "conf/small.yaml")


@pytest.mark.parametrize(
    ("volume", "source", "at"),
    [
        ("/srv/data:/data", "/srv/data", "/data"),
        ("data:/data:ro", "HERE/data", "/data"),
        ("/a b:ü,c:/data", "/a b:ü,c", "/data"),
        ("~nobody-of-this-name/data:/data", "HERE/~nobody-of-this-name/data", "/data"),  # a traceback
    ],
)
def test_volumes_are_written_as_for_docker(folder: Path, volume: str, source: str, at: str) -> None:
    (mount,) = draft.mounts_of(Typed(folder=folder, volumes=[volume]))["mounts"]
    assert mount == {"from": source.replace("HERE", str(folder)), "at": at}


def test_a_cache_is_written_as_a_volume_with_a_name(folder: Path) -> None:
    (mount,) = draft.mounts_of(Typed(folder=folder, caches=["hub:~/.cache/hub"]))["mounts"]
    assert mount == {"cache": "hub", "at": "~/.cache/hub"}
    for cache in ("hub", "hub:", ":/hub"):
        with pytest.raises(UsageError, match=rf"^--cache {cache}: is not NAME:AT; write "):
            draft.mounts_of(Typed(folder=folder, caches=[cache]))


@pytest.mark.parametrize("volume", ["data", "/data:", ":/data", "/data:/data:rw", "/data:/data:z"])
def test_a_volume_that_cannot_be_mounted_is_an_error(folder: Path, volume: str) -> None:
    with pytest.raises(UsageError, match=rf"^-v {re.escape(volume)}: "):
        draft.mounts_of(Typed(folder=folder, volumes=[volume]))


def test_a_program_that_is_nowhere_is_an_error_before_anything_is_launched(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert run(["try", "numpy==2.0.0", "numpy==2.1.0", "--step-pattern", "^step", "--", "python", "-u", "tran.py"]) == 2
    said = f"harness: tran.py: is not in {folder}; did you mean 'train.py'? name a program of this folder"
    assert capsys.readouterr().err == f"{said}\n"
    assert not (folder / "reports").exists()
    assert not (folder / "matrix.yaml").exists()
    for words in (["a:1", "a:2", "--", "python", "tran.py"], ["a:1", "a:2", "--", "torchrun", "tran.py"]):
        assert run(["try", *words]) == 2, "a relative path is in no image, and each version would crash"
        assert capsys.readouterr().err == f"{said}, or the absolute path of one in the images\n"
    for command in (["sh", "gone.sh"], ["./gone"]):
        with pytest.raises(UsageError, match=f"^{command[-1]}: is not in {folder}; name a program"):
            job(folder, *command)
    assert job(folder, "python", "/opt/tran.py").entry == {"command": ["python", "/opt/tran.py"]}, "an image has it"


@given(st.lists(st.text(st.characters(blacklist_categories=["Cc", "Cs"]), min_size=1, max_size=20), min_size=1))
def test_every_word_of_a_command_comes_through_the_file_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    """A $, a quote, a colon, a number: a word that the file changes would run something else."""
    folder = tmp_path_factory.mktemp("folder")
    (scenario,) = drafted(folder, ("app:1", "app:2"), "echo", *words).scenarios
    assert scenario.command == ("echo", *words)


@pytest.mark.parametrize(
    ("asked", "there", "told"),
    [
        ({}, "", ""),
        ({}, "nvidiactl", ""),
        ({}, "dxg", "the launches use no GPU, although DEV/dxg is here: --gpus all asks for it"),
        ({"gpus": "0,1"}, "dxg", ""),
        ({"engine": "ssh://lab"}, "dxg", ""),
    ],
)
def test_gpus_that_auto_leaves_out_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], there: str, told: str
) -> None:
    """The GPUs of WSL2 and Jetson were not used, and nothing said so."""
    monkeypatch.setattr(draft, "GPU_FILE", folder / "nvidiactl")
    monkeypatch.setattr(draft, "OTHER_GPU_FILES", (folder / "dxg",))
    if there:
        (folder / there).touch()
    made = replace(draft_of(folder, "python", "train.py", of=("a:1", "a:2")), typed=replace(NOTHING, **asked))
    assert draft.unused_gpus(made) == told.replace("DEV", str(folder))
    (host,) = read(flow.write(made, out=folder)).hosts
    assert (host.gpus == "none") is (there != "nvidiactl" and "gpus" not in asked)


# ---------------------------------------------------------------- the file


def test_a_matrix_that_was_edited_is_not_overwritten(folder: Path) -> None:
    made = draft_of(folder, "true")
    first = flow.write(made, out=folder)
    assert flow.write(made, out=folder) == first
    first.write_text("edited")
    second = flow.write(made, out=folder)
    assert (first.read_text(), second.name) == ("edited", "try-true-2.yaml")
    assert load_matrix(second, environ={}).name == "try-true"  # the name by which trials are reused


def test_write_keeps_the_matrix_and_launches_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The matrix can be moved with its folder, and no file of the user is overwritten."""
    monkeypatch.chdir(folder)
    line = [
        "try",
        "six==1.15.0",
        "six==1.16.0",
        "--trials",
        "2:4",
        "--write",
        "matrix.yaml",
        "--",
        "python",
        "train.py",
    ]
    assert run(line) == 0
    assert "wrote matrix.yaml; run it with: harness sweep matrix.yaml" in capsys.readouterr().err
    matrix = load_matrix(Path("matrix.yaml"), environ={})
    (scenario,) = matrix.scenarios
    assert matrix.trials == Trials(least=2, most=4), "the same sweep, run again, launches no more"
    assert scenario.program is not None
    assert str(folder) not in Path("matrix.yaml").read_text()
    assert not Path("reports").exists()
    assert run(line) == 2
    assert "matrix.yaml: already exists; choose another name for --write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("app:1", "app:2"), "harness: no command: give it after --"),
        (("app:1", "--", "true"), "two or more"),
        (("a:1", "a:2", "--steps-are", "torch", "--", "true"), "--steps-are: is for a Python program"),
        (("a==4.17.3", "a==4.18.0", "python", "train.py"), "put -- before the command: … -- python train.py"),
        (("a==1", "a==2", "python", "train.py", "--epochs", "3"), "put -- before the command: … -- python train.py"),
    ],
)
def test_try_says_in_one_line_what_is_missing(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["try", *words]) == 2
    assert told in capsys.readouterr().err


def test_a_call_that_is_refused_leaves_no_matrix_and_no_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message named a line of a file that the user had not asked for, and the file stayed."""
    monkeypatch.chdir(folder)
    assert run(["try", "a:1", "a:2", "--engine", "podmann", "--", "python", "train.py"]) == 2
    assert capsys.readouterr().err.startswith("harness: --engine: unknown engine 'podmann'; allowed: docker")
    assert not (folder / "reports").exists()
    (folder / "reports").mkdir()
    assert run(["try", "a:1", "a:2", "--engine", "podmann", "--", "python", "train.py"]) == 2
    assert list((folder / "reports").iterdir()) == [], "the user's own folder stays"


def test_a_folder_whose_name_is_not_utf_8_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a traceback, and half a matrix file stayed."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "train.py").touch()
    monkeypatch.chdir(folder)
    assert run(["try", "six==1.15.0", "six==1.16.0", "--", "python", "train.py"]) == 2
    assert "caf\\udce9/train.py': is not UTF-8, as the text of a matrix file is; rename it" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["train.py"]
    (folder / "reports").mkdir()
    (folder / "reports/try-train.yaml").write_text("of another call")
    assert run(["try", "six==1.15.0", "six==1.16.0", "--", "python", "train.py"]) == 2


def test_a_call_that_launched_nothing_says_why_and_leaves_nothing(folder: Path) -> None:
    result = build.quickstart()
    nothing = replace(result, cells=tuple(replace(cell, trials=()) for cell in result.cells))
    assert flow.unlaunched([nothing, result]) is None, "earlier launches count"
    host = replace(result.hosts[0], problem="no such machine")
    assert str(flow.unlaunched([replace(nothing, hosts=(host,))])) == "nothing was launched: no such machine"
    assert flow.unlaunched([nothing]).__class__.__name__ == "Interrupted"
    unmeasured = [replace(cell, verdict=build.unknown("untested", "no launch finished")) for cell in nothing.cells]
    stopped = flow.unlaunched([replace(nothing, cells=tuple(unmeasured))])
    assert str(stopped) == "interrupted before a launch ended"
    foreign = [replace(cell, verdict=build.unknown("incompatible", "it is for arm64")) for cell in nothing.cells]
    assert str(flow.unlaunched([replace(nothing, cells=tuple(foreign))])) == "nothing was launched: it is for arm64"


# ---------------------------------------------------------------- names


def test_the_imports_of_a_link_to_a_program_are_seen(folder: Path) -> None:
    (folder / "link.py").symlink_to(folder / "train.py")
    assert "torch" in copied.modules(folder / "link.py")


@given(st.text(max_size=80))
@example("größe")
@example("a" * 47 + "--b")
def test_each_name_is_one_that_a_matrix_file_allows(text: str) -> None:
    name = safe(text)
    assert re.fullmatch(NAME, name)
    assert name[-1] not in "._-"


def test_programs_keep_their_names_in_any_script_and_others_have_names_of_their_own() -> None:
    """`тренировка.py` was called `it-4b13a4`; once, all such programs were called `it`, in one folder."""
    for text in ("模型", "тренировка", "größe_2"):
        assert (safe(text), bool(re.fullmatch(NAME, text))) == (text, True)
    assert safe("gro\u0308\u00dfe") == "größe", "as macOS writes it"
    names = {safe(text) for text in ("🚀", "…", "\u202e")}
    assert len(names) == 3
    assert all(re.fullmatch(NAME, name) for name in names)


# ---------------------------------------------------------------- a program's own end


def rehearsed(steps: int, end: End = "stopped") -> RunResult:
    """Return a run whose only launch made these steps."""
    told = f"the program ended by itself after {steps} of 4000 steps; let it make more, or lower `budget`"
    own_end = {"message": told, "shortfall": "own_end"} if end == "stopped" else {}
    return only_launch(end=end, last_step=steps, **own_end)


@pytest.mark.parametrize("steps", [2000, 64])
def test_a_short_training_is_measured_up_to_its_own_end(steps: int, folder: Path) -> None:
    """Each cell of a first sweep was inconclusive: the training had 2,000 steps and the matrix asked for 4,000."""
    made = draft_of(folder, "python", "train.py")
    first = flow.write(made, out=folder)
    matrix, own = flow.fit(made, first, rehearsed(steps), out=folder)
    (scenario,) = read(matrix).scenarios
    assert (matrix, own.budget, scenario.steps.budget) == (first, steps, steps)
    again = flow.write(made, out=folder)
    assert flow.fit(made, again, rehearsed(steps), out=folder)[0] == first, "the same command has the same matrix"
    assert len(list(folder.glob("try-*.yaml"))) == 1


@pytest.mark.parametrize("budget", [130, 300, 398, 511, 600, 2998])
def test_the_looks_at_a_quick_program_show_what_its_steps_leave_open(folder: Path, budget: int) -> None:
    """Files that each of 398 steps of 0.1 ms left were `counted too rarely to judge`."""
    whole = replace(draft_of(folder, "python", "train.py"), budget=budget)
    (scenario,) = read(flow.write(whole, out=folder)).scenarios
    step = np.array([1, *scenario.steps.looks()], dtype=np.float64)
    trace = Trace(step=step, columns={}, counts={"step": step, "open_files": np.floor(5 + 0.2 * step)})
    assert judge_counts(trace, limits=Limits())["open_files"].verdict == "leak"


@pytest.mark.parametrize(("steps", "end"), [(4000, "completed"), (2000, "crash"), (63, "stopped")])
def test_a_budget_stays_that_no_own_end_sets(steps: int, end: End, folder: Path) -> None:
    made = draft_of(folder, "python", "train.py")
    matrix, own = flow.fit(made, flow.write(made, out=folder), rehearsed(steps, end), out=folder)
    assert own.budget == 4000
    assert "4000" in matrix.read_text()


def took(duration_s: float, end: End = "completed", *, step_s: float | None = None) -> RunResult:
    """Return a run whose only launch took so long, with 100 steps if they were timed."""
    trace = None if step_s is None else Trace(step=np.arange(1.0, 101.0), columns={"step_s": np.full(100, step_s)})
    return only_launch(end=end, duration_s=duration_s, trace=trace, last_step=100 if trace else 0, facts=Facts())


@pytest.mark.parametrize(
    ("words", "result", "timeout_s"),
    [
        (("./check.sh",), took(2.0), 80.0),
        (("./check.sh",), took(200.0), 1200.0),
        (("./check.sh",), took(1200.0, "hang"), 1200.0),  # how long a launch takes is not known
        (("./check.sh",), took(1200.0, "hang", step_s=0.1), 160.0),  # it hung after its steps
        (("./check.sh",), took(0.1, "crash"), 1200.0),
        (("python", "train.py"), took(2.0), 140.0),
        (("python", "train.py"), took(70.0), 660.0),
    ],
)
def test_a_version_that_hangs_is_not_waited_for_as_long_as_nothing_is_known(
    words: tuple[str, ...], result: RunResult, timeout_s: float, folder: Path
) -> None:
    """A command of two seconds that hung in the newer version was waited for 20 minutes, in every launch."""
    (folder / "check.sh").write_text("#!/bin/sh\n")
    made = draft_of(folder, *words)
    matrix, known = flow.fit(made, flow.write(made, out=folder), result, out=folder)
    (scenario,) = read(matrix).scenarios
    assert scenario.timeout_s == timeout_s
    assert (known.timeout_s is None) == (timeout_s == made.longest_s)


@pytest.mark.parametrize(("duration_s", "most"), [(0.1, 16), (4.0, 10), (70.0, 6)])
def test_short_launches_may_be_more_of_them(duration_s: float, most: int, folder: Path) -> None:
    """On a busy machine, 13 of 21 public scripts ended with `?` for times after six launches of few seconds."""
    made, result = draft_of(folder, "python", "train.py"), took(duration_s)
    row = result.plan.rows[0]
    two = replace(result, plan=replace(result.plan, rows=(replace(row, cells=row.cells[:2]),)))
    matrix, _ = flow.fit(made, flow.write(made, out=folder), two, out=folder)
    assert read(matrix).trials == Trials(least=3, most=most)


# ---------------------------------------------------------------- what the first launch shows


LOOP = '''"""A loop."""
import time


class Net:
    def forward(self): ...


def load(): ...


def train_one(): ...
'''
NO_STEP = "the program ended, and no step was seen: it did not import any framework"


def plain_loop(folder: Path, **more: Any) -> draft.Draft:
    (folder / "loop.py").write_text(LOOP)
    return draft_of(folder, "python", "loop.py", of=("a==1", "a==2"), **more)


def ended(end: End, message: str, *, steps: int = 0, output: str = "", remedy: Remedy = "") -> RunResult:
    """Return a run whose only launch ended like this."""
    shortfall = "no_step" if "no step was seen" in message else ""
    fields = {"message": message, "remedy": remedy, "shortfall": shortfall, "output_tail": output}
    return only_launch(end=end, last_step=steps, **fields)


def test_a_loop_without_a_framework_is_told_what_to_type(folder: Path) -> None:
    """The message named a key of a matrix file, to a user who has none."""
    seen = ended("setup", NO_STEP, output="loaded 3\n" + "step 1 loss=0.5\n" * 3, remedy="function")
    with pytest.raises(Undecided) as told:
        flow.check_steps(plain_loop(folder), seen)
    assert str(told.value) == (
        "loop.py: the program ended, and no step was seen: it did not import any framework; name the function that "
        "makes a step, such as --steps-are loop:train_one (it defines train_one, Net.forward, load), or count each "
        "matching line of its output as a step: --step-pattern '^step '"
    )


def test_the_pattern_that_is_suggested_matches_the_line_that_was_printed(folder: Path) -> None:
    line = "[train] (epoch) 3/9"  # a coloured line would be suggested with its escape codes
    printed = f"\x1b[32m3 %\n\x1b[32m4 %\n{line}\r\n" * 3
    with pytest.raises(Undecided) as told:
        flow.check_steps(plain_loop(folder), ended("setup", NO_STEP, output=printed))
    (pattern,) = shlex.split(str(told.value).rpartition("--step-pattern ")[2])
    assert re.search(pattern, line)


@pytest.mark.parametrize(
    "output",
    [
        "loaded 3 files\nstep 1\nstep 2\n",
        "".join(f"\r {at}%|{'#' * at}  | {at}/9 [00:01<00:01, {at}it/s]" for at in range(9)) + "\n",
        " 1\n 2\n 3\n 4\n",
        "/tmp/harness-trial-ab.1/scenario/loop.py:7: RuntimeWarning: overflow\n" * 4,
        "".join(f"import time:  {took} |  {took} | m{took}\n" for took in (310, 95, 620, 95, 88)),
    ],
    ids=["too few lines", "a progress bar", "numbers without a word", "warnings", "a list of times"],
)
def test_no_pattern_is_suggested_that_counts_no_steps(folder: Path, output: str) -> None:
    """`--step-pattern '^ '` counted how often a progress bar was drawn, and a loop 3 times slower got a tick."""
    with pytest.raises(Undecided, match="let it print a number at each step"):
        flow.check_steps(plain_loop(folder), ended("setup", NO_STEP, output=output, remedy="function"))
    whole = only_launch(
        end="completed",
        last_step=1,
        shortfall="no_step",
        output_tail=output,
        facts=Facts(run_s=2.0),
        output_head=output,
    )
    note = flow.note_on_whole_run(plain_loop(folder), whole)
    assert note is not None
    assert "--step-pattern" not in note
    (folder / "loop.py").write_text("print(1)")
    note = flow.note_on_whole_run(draft_of(folder, "python", "loop.py"), whole)
    assert note is not None
    assert note.endswith("on the disk at its end, and printed numbers"), "there is nothing to name"


def test_a_question_that_is_refused_leaves_no_run_behind(tmp_path: Path) -> None:
    """`harness runs` listed it as infrastructure, although nothing was measured."""
    made = [
        RunDirectory.create(out=tmp_path, matrix="try-loop", now=datetime(2026, 3, day, tzinfo=timezone.utc))
        for day in (1, 2, 3)
    ]
    made[2].point_latest()
    seen = ended("setup", NO_STEP)
    flow.remove_runs([replace(seen, directory=run.path) for run in made[1:]])
    assert (tmp_path / "try-loop" / "latest").resolve() == made[0].path
    flow.remove_runs([replace(seen, directory=run.path) for run in made[:2]])  # one file is gone already
    assert not list(tmp_path.iterdir())


def test_a_command_whose_pattern_matches_nothing_is_not_told_of_functions(folder: Path) -> None:
    made = plain_loop(folder, step_pattern="^epoch")
    message = "the command ended, and no step was seen: no line matches step_pattern '^epoch'; its last line is: step 4"
    with pytest.raises(UsageError) as told:
        flow.check_steps(made, ended("setup", message, output="step 4\n" * 3))
    assert "--steps-are" not in str(told.value)
    assert str(told.value).startswith(f"python loop.py: {message}; count each matching line")


def test_a_launch_that_made_steps_or_crashed_is_no_error_of_the_question(folder: Path) -> None:
    for seen in (ended("completed", "", steps=500), ended("crash", "step 3: ValueError: x"), ended("setup", "x")):
        flow.check_steps(plain_loop(folder), seen)


def test_what_both_ends_lack_is_said_after_three_launches(folder: Path) -> None:
    """Six launches reported a missing module, and none named the option that installs it."""
    lacks = ended("setup", "Traceback …/trial-1/…\nbefore the first step: ModuleNotFoundError: No module named 'yaml'")
    other = ended("setup", "Traceback …/trial-2/…\nbefore the first step: ModuleNotFoundError: No module named 'yaml'")
    assert flow.fails_at_once(plain_loop(folder), lacks)
    with pytest.raises(UsageError, match="No module named 'yaml'; if that is a package, also install it: --with"):
        flow.check_both(plain_loop(folder), lacks, other)
    flow.check_both(plain_loop(folder), lacks, ended("completed", "", steps=500))
    one, other = (
        ended("setup", f"before the first step: [Errno 2] No such file or directory: '/tmp/harness-trial-{own}/data/a'")
        for own in ("1.4_f3", "1.4_d7")
    )
    with pytest.raises(UsageError, match=r"'…/data/a'; if that is a file of this folder, .*start in the folder that"):
        flow.check_both(plain_loop(folder), one, other)


def test_a_command_that_exists_nowhere_is_refused_with_the_name_that_was_meant(folder: Path) -> None:
    """`-- pyhton train.py` was launched in all versions, and the report said that nothing bad was found."""
    lacks = ended("setup", "cannot start pyhton: No such file or directory")
    made = draft_of(folder, "pyhton", "train.py")
    assert flow.fails_at_once(made, lacks)
    with pytest.raises(UsageError, match=r"did you mean 'python3?'\? name a command that all versions have$"):
        flow.check_both(made, lacks, lacks)
    for own in (made, plain_loop(folder)):
        data = ended("setup", "cat: data.csv: No such file or directory")
        with pytest.raises(UsageError, match=r"data.csv: No such file or directory; .* also copy it in: --file NAME"):
            flow.check_both(own, data, data)


def test_a_program_without_python_before_it_is_refused_before_a_launch(folder: Path) -> None:
    """Both ends were launched, and then `name a command that all versions have` was advised."""
    for words in (("train.py", "-n", "3"), ("./train.py",), ("parts/loss.py",)):
        told = re.escape(f"{words[0]}: is not a command; did you mean: python {' '.join(words)}?")
        with pytest.raises(UsageError, match=f"^{told}$"):
            job(folder, *words)
    with pytest.raises(UsageError, match=r"^train.py: is not a command; did you mean: python train.py\?$"):
        varied(folder, "A=1,2", command=("train.py",))
    (folder / "train.py").chmod(0o755)
    assert job(folder, "./train.py").entry["command"] == ["./train.py"]
    assert job(folder, "/opt/train.py").entry["command"] == ["/opt/train.py"]
    with pytest.raises(UsageError, match=r"did you mean: python train.py\?$"):
        job(folder, "train.py")


def test_a_name_is_found_beside_a_folder_that_the_user_may_not_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of another user on PATH ended the message about a wrong command with a traceback."""
    listed = Path.iterdir
    monkeypatch.setenv("PATH", f"/sealed:/absent:{os.environ['PATH']}")

    def sealed(path: Path) -> Iterator[Path]:
        if path == Path("/sealed"):
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", sealed)
    assert near_command("pyhton") in ("python", "python3")
    assert near_command("qqqqqq") is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--cache", "x:/c"], "--cache x:/c: host local has no containers, so that no path of its own can be replaced "
         "there; write c, which becomes a link in the folder of the launch, or ~/c, in its home"),
        (["-v", "/etc:/"], "-v /etc:/: '/' cannot be mounted over; choose another path, such as /data"),
        (["--gpus", ""], "--gpus: is empty; write some text"),
        (["--python", "abc"], "--python: 'abc' is not a version of Python 3, such as 3.11"),
        (["--env-file", "/nope"], "--env-file: '/nope' does not exist; name one that exists"),
        (["--with", "num py"], "--with: 'num py' is not a requirement"),
        (["--serve", "--get", "/"], "--serve: the command must be told its port; write {port} in its place, or give"),
        (["--serve", "--get", "/", "--port", "80"], "--port: servers on local share its ports"),
        (["--serve", "--get", "/", "--port", "80", "{port}"], "--port: a word of the server has {port}, which is a"),
        (["-v", "gone:/x"], "-v gone:/x: "),
        (["--tls"], "--tls: is for a server; add --serve"),
        (["--serve", "--client", "wrk", "{port}"], "--client: does not say where the server is: write {url}"),
        (["--serve", "--get", "x", "{port}"], "--get: 'x' is not a path of a URL; write one such as /health"),
        (["--serve", "--ready", "x", "--get", "/", "{port}"], "--ready: 'x' is not a path of a URL; write one such as"),
        (["--serve", "--post", "x", "--body", "{}", "{port}"], "--post: 'x' is not a path of a URL; write one such as"),
        (["--serve", "--requests", "empty", "{port}"], "--requests: empty must have 1 to 100,000 lines"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_option_names_the_option(
    folder: Path, options: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`write at: c` is for a matrix file, and `is empty; write some text` did not say what."""
    monkeypatch.chdir(folder)
    Path("empty").touch()
    given, words = [word for word in options if word != "{port}"], options[-1:] if options[-1] == "{port}" else []
    typed = ["try", "six==1.16.0", "six==1.17.0", *given, "--write", "m.yaml", "--", "python", "train.py", *words]
    assert run(typed) == exit_codes.USAGE
    assert f"harness: {told}" in capsys.readouterr().err
    assert not (folder / "m.yaml").exists()


def test_each_option_of_a_server_is_named_and_no_name_of_the_file_is_taken_for_one() -> None:
    """`python results.py` blamed --results, and `python mounts.py` ended with KeyError."""
    words = {flag for one in try_.params for flag in one.opts}
    asked = {f"--{name}" for name in ("port", "tls", "ready", "get", "post", "body", "requests", "client", *LOAD)}
    assert asked <= set(OPTIONS.values()) <= words
    assert option_of(("scenarios", "results"), NOTHING) == option_of(("scenarios", "mounts", "program"), NOTHING) == ""
    assert option_of(("scenarios", "port", "request", "json"), NOTHING) == "--body"
    assert [option_of(("series", "a", "install", place), NOTHING) for place in (0, 1)] == ["", "--with"]
    assert option_of(("scenarios", "a", "params", "rate", 0), NOTHING) == "--rate"
    varied = replace(NOTHING, vary=["MODE=1,2", "port=80,81"])
    assert {option_of(("scenarios", "a", "params", name), varied) for name in ("MODE", "port")} == {"--vary"}


def test_try_has_the_options_that_the_first_launch_names() -> None:
    assert {"--file", "--with", "--steps-are", "--step-pattern"} <= {flag for one in try_.params for flag in one.opts}


def ran(steps: int, shortfall: str, *, end: End = "stopped") -> RunResult:
    """Return a run whose only launch ended by itself after two seconds."""
    output = "it's epoch 1\nit's epoch 2\nit's epoch 2\n"
    return only_launch(end=end, last_step=steps, shortfall=shortfall, output_tail=output, facts=Facts(run_s=2.0))


def test_a_program_without_steps_is_not_refused_but_judged_as_a_whole(folder: Path) -> None:
    """Three of three ordinary scripts were refused: `no step was seen`."""
    made = plain_loop(folder)
    (folder / "loop.py").write_text(LOOP + "for _ in range(9): load(); train_one()\n")
    flow.check_steps(made, ran(1, "no_step", end="completed"))
    note = flow.note_on_whole_run(made, ran(1, "no_step", end="completed"))
    assert note == (
        "loop.py: no step was seen, so each launch is one figure: run time, processor time, peak memory, output, "
        "what it holds and leaves on the disk at its end, and printed numbers; --steps-are loop:train_one or "
        "--step-pattern '^it.s epoch ' makes it finer"
    )
    (folder / "loop.py").write_text(LOOP + "def train(): yield 1\nfor _ in train(): load(); train_one()\n")
    assert "loop:train_one" in str(flow.note_on_whole_run(made, ran(1, "no_step", end="completed"))), "not a generator"
    note = flow.note_on_whole_run(made, ran(5, "own_end"))
    assert note == "loop.py: made 5 steps and ended; growth needs at least 64 steps, so everything else is judged"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "over_time", lambda trial: trial)
        told = "of growth, only that of memory is judged, because any other needs at least 64 steps"
        assert flow.note_on_whole_run(made, ran(5, "own_end")) == f"loop.py: made 5 steps and ended; {told}"
    assert flow.note_on_whole_run(made, ran(64, "own_end")) is None


def test_below_a_larger_peak_stands_what_tells_whether_it_is_a_leak(folder: Path) -> None:
    """The hint scrolled by as a line of progress, and the result named 71 MiB in place of 14, but no leak."""
    made = plain_loop(folder)
    (folder / "loop.py").write_text(LOOP + "for _ in range(9): load(); train_one()\n")
    whole = ran(1, "no_step", end="completed")
    (finding, *_) = build.quickstart().findings
    worse = replace(whole, findings=(replace(finding, metric="peak_memory"),))
    note = flow.note_on_peaks(made, worse)
    assert note is not None
    assert "a leak shows only as a larger peak: --steps-are loop:train_one or --step-pattern" in note
    assert flow.note_on_peaks(made, replace(whole, findings=())) is None
    assert flow.note_on_peaks(made, replace(ran(500, "own_end"), findings=worse.findings)) is None


def test_a_command_that_prints_lines_is_told_how_they_become_steps(folder: Path) -> None:
    """A leak of a command showed only as a larger peak, and nothing named the option by which it is judged."""
    made, whole = draft_of(folder, "sh", "loop.py"), ran(3, "own_end", end="completed")
    assert "--step-pattern '^it.s epoch ' makes it finer" in str(flow.note_on_whole_run(made, whole))
    assert flow.note_on_whole_run(draft_of(folder, "sh", "loop.py", step_pattern="^it"), whole) is None
    (finding, *_) = build.quickstart().findings
    worse = replace(whole, findings=(replace(finding, metric="peak_memory"),))
    assert "--step-pattern '^it.s epoch ' tells them apart" in str(flow.note_on_peaks(made, worse))


@pytest.mark.parametrize(
    ("version", "param", "line", "pattern"),
    [
        ("fast", "1", "mode Fast iter {}", None),
        ("cu118", "1", "mode=cu118 iter {}", None),
        ("2", "ab", "mode ab iter {}", None),
        ("as", "1", "loss at {}", "'^loss at '"),
        ("1.2", "1", "lib 1.2, iter {}", "'^lib '"),
    ],
)
def test_a_pattern_that_only_one_version_prints_is_not_advised(
    folder: Path, version: str, param: str, line: str, pattern: str | None
) -> None:
    """`--step-pattern '^mode fast iter '` was advised, and the version `slow` then made no step."""
    output = "".join(f"{line}\n".format(number) for number in range(9))
    whole = only_launch(shortfall="own_end", output_tail=output, last_step=3, end="completed", facts=Facts(run_s=2.0))
    (one,) = whole.cells
    cell = replace(one.cell, image=replace(one.cell.image, version=version))
    cell = replace(cell, variant=replace(cell.variant, params=(("B", param),)))
    note = flow.note_on_whole_run(draft_of(folder, "sh", "loop.py"), replace(whole, cells=(replace(one, cell=cell),)))
    assert note is None if pattern is None else f"--step-pattern {pattern} makes it finer" in str(note)


def test_a_program_that_ends_alike_in_every_version_is_no_wrong_usage(folder: Path) -> None:
    """A script that ends with sys.exit(3) was told that it must run in one of the versions, with exit code 2."""
    bye = ended("setup", "before the first step: the program called sys.exit(3): bye")
    with pytest.raises(Undecided, match=r"in the oldest and in the newest version, .*sys.exit\(3\): bye"):
        flow.check_both(plain_loop(folder), bye, bye)
    assert Undecided("").exit_code == exit_codes.UNDECIDED


def test_the_function_that_a_loop_calls_is_suggested_first(folder: Path) -> None:
    made = plain_loop(folder)
    (folder / "loop.py").write_text(LOOP + "train_one()\nfor _ in range(9): load()\n")
    with pytest.raises(Undecided, match="such as --steps-are loop:load "):
        flow.check_steps(made, ended("setup", NO_STEP, remedy="longer"))


def test_a_function_that_is_not_there_is_told_in_the_words_that_were_typed(folder: Path) -> None:
    of = plain_loop(folder).job
    assert steps_of("loop:Net.forward", of) == {"steps_are": {"function": "loop:Net.forward"}}
    with pytest.raises(UsageError, match=r"--steps-are loop:nix: loop.py has no nix; it has: Net, load, train_one"):
        steps_of("loop:nix", of)
    (folder / "loop.py").write_text("for number in range(9): print(number)\n")
    with pytest.raises(
        UsageError, match=r"loop.py has no step, and it defines no function: move the code of one step into"
    ):
        steps_of("loop:step", of)
    with pytest.raises(UsageError, match=r"--steps-are torhc: is not a kind of step; did you mean 'torch'\?"):
        steps_of("torhc", of)


def test_a_program_without_a_step_is_launched_once(folder: Path) -> None:
    """Each version was launched twice, and each launch repeated the message."""
    (launch,) = ended("setup", NO_STEP).cells[0].trials
    cell = build.quickstart().cells[0].cell
    assert not CellRun(cell=cell, trials=[launch]).runnable
    assert CellRun(cell=cell, trials=[changed(launch, message="ImportError: x", shortfall="")]).runnable


@pytest.mark.parametrize(
    ("words", "launcher", "args"),
    [
        ("torchrun --nproc-per-node 2 train.py --lr 1", "torchrun --nproc-per-node 2", ["--lr", "1"]),
        ("python -m torch.distributed.run --nproc_per_node=2 train.py",
         "python -m torch.distributed.run --nproc_per_node=2", None),
        ("mpirun -n 4 python -u train.py x", "mpirun -n 4", ["x"]),
        ("accelerate launch --num_processes 2 train.py", "accelerate launch --num_processes 2", None),
    ],
)  # fmt: skip
def test_a_known_launcher_leaves_the_program_to_be_measured_from_inside(
    folder: Path, words: str, launcher: str, args: list[str] | None
) -> None:
    """A command would be measured from outside: no step of any rank would be seen."""
    entry = job(folder, *words.split()).entry
    assert (entry["program"], entry["launcher"], entry.get("args")) == (str(folder / "train.py"), launcher, args)
    assert job(folder, "mpirun", "-n", "2", "./a.out").entry == {"command": ["mpirun", "-n", "2", "./a.out"]}


# ---------------------------------------------------------------- any command, varied


def varied(folder: Path, *vary: str, command: tuple[str, ...] = ("true",), **more: Any) -> draft.Draft:
    return draft.drafted(Typed(folder=folder, command=command, vary=vary, gpus="none", **more))


def test_a_variable_of_any_command_is_a_series_and_a_second_one_is_a_param(folder: Path) -> None:
    (folder / "bench.sh").write_text("true\n")
    words = ("sh", "-c", "./bench.sh --conf=conf/small.yaml {version}")
    made = varied(folder, 'FLAGS="-O2,-g",a b', "COMPILE=0,1", command=words, exit_code=True)
    matrix = read(flow.write(made, out=folder / "reports"))
    [series], [scenario], [host] = matrix.series, matrix.scenarios, matrix.hosts
    assert [image.environment for image in series.images] == [(("FLAGS", "-O2,-g"),), (("FLAGS", "a b"),)]
    assert scenario.params == (("COMPILE", ("0", "1")),)
    assert scenario.environment == (("COMPILE", "{COMPILE}"),)
    assert (scenario.command, scenario.folder, host.engine) == (words, folder, "process")
    assert set(scenario.files) == {folder / "bench.sh", folder / "conf/small.yaml"}
    assert scenario.limits.exit_only


@pytest.mark.parametrize(
    ("vary", "more", "said"),
    [
        (["2X=a,b"], {}, "'2X' cannot name an environment variable; write one such as IMAGE=app:1,app:2"),
        (["A B=a,b"], {}, "'A B' cannot name an environment variable"),
        (["=a,b"], {}, "'' cannot name an environment variable"),
        (["IMAGE"], {}, "needs two values or more; write IMAGE=a,b,c"),
        (["IMAGE="], {}, "needs two values or more"),
        (["IMAGE=a"], {}, "needs two values or more"),
        (["IMAGE=a,,b"], {}, "has an empty value"),
        (["IMAGE=a,b,a"], {}, "'a' appears twice"),
        (['F="a,b,c'], {}, "put a value with a comma in double quotes"),
        (["A=1,2", "A=3,4"], {}, "--vary A: is given twice"),
        (["A=1,2", "B=1,2", "B=3,4"], {}, "--vary B: is given twice"),
        (["A=1,2"], {"versions": ("a:1", "a:2")}, "versions: is not for --vary"),
        (["A=1,2"], {"beside": ("numpy",)}, "--with: is not for --vary"),
        (["A=1,2"], {"network": True}, "--network: is not for --vary"),
        (["A=1,2"], {"steps_are": "a:b"}, "--steps-are: is not for --vary, which measures from outside; use --step-p"),
        (["A=1,2"], {"engine": "docker"}, "--engine docker: a varied command runs on this machine"),
        (["A=1,2"], {"command": ("no-such-command",)}, "no-such-command: no such command on this machine"),
        (["A=1,2"], {"command": ("./nothing.sh",)}, "./nothing.sh: no such file"),
        (["A=1,2"], {"command": ("./train.py",)}, "./train.py: is not executable; run chmod"),
        (["A=1,2"], {"command": (), "versions": ("sh", "x")}, "put -- before the command: … -- sh x"),
    ],
)
def test_a_mistake_in_vary_is_one_line_with_the_remedy(
    folder: Path, vary: list[str], more: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as raised:
        varied(folder, *vary, **more)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_varied_command_that_fails_alike_at_both_ends_is_refused(folder: Path) -> None:
    """`docker run -it` needs a terminal. Each version was launched three times, and reported as bad from the start."""
    made = varied(folder, "A=1,2")
    alike = [ended("crash", f"trial {number}\nafter sample 1: the input device is not a TTY") for number in (1, 2)]
    assert flow.fails_at_once(made, alike[0])
    with pytest.raises(UsageError, match=r"is not a TTY; it wants a terminal and has none: leave out -t"):
        flow.check_both(made, *alike)
    with pytest.raises(Undecided, match="fails alike in the oldest and in the newest version"):
        flow.check_both(made, ended("crash", "exit code 1: no"), ended("crash", "exit code 1: no"))
    flow.check_both(made, alike[0], ended("crash", "something else"))
    lacks = ended("crash", "exit code 1: ModuleNotFoundError: No module named 'numpy'")
    with pytest.raises(UsageError, match=r"'numpy'; it runs as it is: install it in the Python that runs here$"):
        flow.check_both(made, lacks, lacks)  # it named requirement files, of which there are none
