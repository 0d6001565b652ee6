"""The cache of virtual environments: what is removed, what stays, and the errors if it cannot be used."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import ImageUnavailable, InfrastructureError
from harness.model import Image, Install, Where
from harness.model.watching import unheard
from harness.run.interruptible import NetworkTrouble
from harness.run.process import environments
from harness.run.process.environments import EnvironmentStore

NAME = "0123456789abcdef0123"
SOURCE = Install(base="", python=None, packages=())
IMAGE = Image(series="s", version="1", source=SOURCE, where=Where(file="m.yaml", line=3, key="series.s"))


def finished(cache: Path, name: str = NAME) -> Path:
    """Make an environment that the cache takes for finished."""
    folder = cache / "environments" / name
    (folder / "lib").mkdir(parents=True)
    (folder / environments.CONFIGURATION).write_text("home = /usr/bin\n")
    (folder / environments.MARKER).write_text(json.dumps({"digest": "sha256:1"}))
    return folder


def store(environ: Mapping[str, str], *waits_s: float) -> EnvironmentStore:
    return EnvironmentStore(environ=environ, host_in_words="engine: process", waits_s=waits_s)


def remove_all(cache: Path) -> tuple[list[Path], list[str]]:
    said: list[str] = []
    return [Path(name) for name in store({"HARNESS_CACHE": str(cache)}).remove_images(said.append)], said


def test_only_environments_of_ours_are_removed(tmp_path: Path) -> None:
    ours = finished(tmp_path)
    own = finished(tmp_path, "my-own-environment")
    thesis = tmp_path / "environments" / "abcdefabcdefabcdefab"
    thesis.mkdir()
    (thesis / "thesis.tex").write_text("years of work")
    link = tmp_path / "environments" / "ffffffffffffffffffff"
    link.symlink_to(own)
    assert remove_all(tmp_path) == ([ours], [])
    assert not ours.exists()
    assert sorted(own.parent.iterdir()) == sorted([own, thesis, link, ours.with_suffix(".lock")])


def test_an_environment_is_removed_whatever_users_call_it(tmp_path: Path) -> None:
    """The hybrids of `harness narrow` have names of their own; all of them stayed."""
    folder = finished(tmp_path)
    (kept,) = store({"HARNESS_CACHE": str(tmp_path)}).kept()
    assert store({"HARNESS_CACHE": str(tmp_path)}).remove(replace(kept, name="1.0 with numpy"), unheard)
    assert not folder.exists()


def test_an_environment_half_removed_is_removed_the_next_time(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    (folder / environments.MARKER).unlink()
    assert remove_all(tmp_path)[0] == [folder]
    assert not folder.exists()


def test_an_environment_in_use_is_left_alone_by_all_who_would_remove_it(tmp_path: Path) -> None:
    folder = finished(tmp_path)
    with environments.in_use(environments.python_of(folder)), environments.in_use(environments.python_of(folder)):
        assert remove_all(tmp_path) == ([], [f"{folder} is in use by another run; left alone"])
    assert folder.exists()
    assert remove_all(tmp_path) == ([folder], [])


@pytest.mark.parametrize("marker", ["", "[]", '{"digest"', "{}"])
def test_a_marker_that_cannot_be_read_is_none(tmp_path: Path, marker: str) -> None:
    folder = finished(tmp_path)
    (folder / environments.MARKER).write_text(marker)
    with pytest.raises(InfrastructureError), environments.in_use(environments.python_of(folder)):
        pytest.fail("it is not known to be finished")


@pytest.mark.parametrize("variable", ["HARNESS_CACHE", "XDG_CACHE_HOME", "HOME"])
def test_a_cache_that_cannot_be_written_is_told_with_what_to_do(tmp_path: Path, variable: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ImageUnavailable, match=r"^m\.yaml:3: series\.s: .*file.*; free some space there, or set HARNESS_CACHE"
    ):
        store({variable: str(tmp_path / "file")}).prepare(IMAGE, unheard)


def test_a_relative_cache_is_of_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial runs in its own folder: a relative path to its Python would lead nowhere from there."""
    monkeypatch.chdir(tmp_path)
    assert environments.cache_folder({"HARNESS_CACHE": "x"}) == tmp_path / "x/environments"
    assert environments.cache_folder({"XDG_CACHE_HOME": "x"}) == tmp_path / "x/harness/environments"


def wheel(folder: Path, name: str) -> Path:
    """Return a folder with version 7 of a package that no index has."""
    folder.mkdir()
    info = f"{name}-7.dist-info"
    with zipfile.ZipFile(folder / f"{name}-7-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", "")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 7\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return folder


def offline(folder: Path, links: str) -> dict[str, str]:
    """Return variables of a user whose only packages are in these folders."""
    (folder / "index").mkdir()
    cache, index = str(folder / "cache"), (folder / "index").as_uri()
    return {"PATH": os.environ["PATH"], "HARNESS_CACHE": cache, "PIP_FIND_LINKS": links, "PIP_INDEX_URL": index}


def test_what_a_local_folder_has_is_found_and_installed(tmp_path: Path) -> None:
    """The doctor and the plan knew the version, and the installation said that no registry had it."""
    links = wheel(tmp_path / "pip", "harness_test_one"), wheel(tmp_path / "uv", "harness_test_two")
    environ = {**offline(tmp_path, f"{tmp_path}/gone {links[0]}"), "UV_FIND_LINKS": str(links[1])}
    source = Install(base="", python=None, packages=("harness-test-one==7", "harness-test-two==7"))
    made = store(environ).prepare(replace(IMAGE, source=source), unheard)
    importing = [made.reference, "-c", "import harness_test_one, harness_test_two"]
    assert subprocess.run(importing, check=False).returncode == 0


def test_an_index_that_is_down_for_a_moment_costs_no_version(tmp_path: Path) -> None:
    """A version must not be untested because of one lost connection: the index is asked again."""
    environ = {
        **os.environ, "HARNESS_CACHE": str(tmp_path), "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple",
        "UV_HTTP_RETRIES": "0", "UV_NO_CACHE": "1",
    }  # fmt: skip
    said: list[str] = []
    with pytest.raises(NetworkTrouble, match=r"m\.yaml:3: series\.s: s 1: .*127\.0\.0\.1:9"):
        store(environ, 0.1, 0.1).prepare(replace(IMAGE, source=replace(SOURCE, packages=("six==1.16.0",))), said.append)
    assert sum("trying again" in line for line in said) == 2


def test_a_package_whose_file_has_another_hash_is_not_installed(tmp_path: Path) -> None:
    """A lock file says which file it means; an index could serve another file under the same name."""
    links = wheel(tmp_path / "links", "harness_test_one")
    (file,) = links.iterdir()
    right = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    environ = offline(tmp_path, str(links))

    def prepared(digest: str) -> str:
        name = "harness-test-one==7"
        source = Install(base="", python=None, packages=(name,), hashes=((name, (digest,)),))
        return store(environ).prepare(replace(IMAGE, source=source), unheard).reference

    python = prepared(right)
    assert subprocess.run([python, "-c", "import harness_test_one"], check=False).returncode == 0
    with pytest.raises(ImageUnavailable, match="the file of harness-test-one==7 does not match its --hash"):
        prepared(f"sha256:{'0' * 64}")


@pytest.mark.parametrize(
    ("environ", "index"),
    [
        ({"PIP_INDEX_URL": "https://pip"}, "https://pip"),
        ({"PIP_INDEX_URL": "https://pip", "UV_DEFAULT_INDEX": "https://uv"}, "https://uv"),
        ({"PIP_INDEX_URL": "https://pip", "UV_INDEX_URL": "https://uv"}, None),
        ({"PIP_INDEX_URL": ""}, None),
    ],
)
def test_pip_s_index_is_uv_s_where_uv_has_none(environ: dict[str, str], index: str | None) -> None:
    told = environments.settings_of_uv({**environ, "PIP_EXTRA_INDEX_URL": "https://a https://b", "PYTHONPATH": "/x"})
    assert (told.get("UV_DEFAULT_INDEX"), told["UV_EXTRA_INDEX_URL"]) == (index, "https://a https://b")
    assert "PYTHONPATH" not in told


def test_build_code_of_packages_sees_no_credential_of_the_user() -> None:
    """A package without a wheel runs its author's code when it is installed: cloud keys were within its reach."""
    environ = {
        "PATH": "/bin", "HOME": "/home/ada", "LC_ALL": "C", "https_proxy": "http://proxy:1", "SSL_CERT_FILE": "/ca",
        "UV_INDEX_OURS_PASSWORD": "p", "UV_LINK_MODE": "copy", "CFLAGS": "-O2", "CMAKE_ARGS": "-DX=1",
    }  # fmt: skip
    secret = dict.fromkeys(
        ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "NGC_API_KEY", "SSH_AUTH_SOCK", "DOCKER_HOST", "GITHUB_TOKEN",
         "UV_PUBLISH_TOKEN", "UV_GITHUB_TOKEN", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "LD_PRELOAD", "PIP_PASSWORD"),
        "secret",
    )  # fmt: skip
    assert environments.settings_of_uv({**environ, **secret}) == environ


def test_the_shims_of_pyenv_are_not_run(tmp_path: Path) -> None:
    """Each shim takes as long as ten interpreters: a request for a missing Python took seconds."""
    for folder in (".pyenv/shims", ".pyenv/versions/3.9.18/bin", "bin"):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("python", "python3.9"):
            (tmp_path / folder / name).symlink_to(sys.executable)
    found = environments.candidates(
        {"HOME": str(tmp_path), "PATH": os.pathsep.join([str(tmp_path / ".pyenv/shims"), str(tmp_path / "bin")])}
    )
    places = (Path(sys.executable), tmp_path / ".pyenv/versions/3.9.18/bin/python", tmp_path / "bin/python3.9")
    assert tuple(found) == places


def test_builds_of_one_version_are_told_apart(tmp_path: Path) -> None:
    """They are distinguished by their location and by their own metadata."""
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\n{sys.executable} "$@" | sed s/GCC/Clang/\n')
    other.chmod(0o755)
    mine, theirs = environments.build_of(Path(sys.executable)), environments.build_of(other)
    assert environments.version_of(other) == environments.version_of(Path(sys.executable))
    assert mine.split(" ", 1)[0] == str(Path(sys.executable).resolve())
    assert mine.split(" ", 1)[1] != theirs.split(" ", 1)[1]
    assert sys.version.split("\n")[0] in mine
