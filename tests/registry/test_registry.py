"""The client with a real registry, with every kind of login, and images that an engine really pushed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import exit_codes
from harness.cli import run
from harness.registry import bounded_http
from harness.registry.bounded_http import RegistryDenied
from harness.registry.registry_client import Registry
from tests.registry.held import Held, docker_config
from tests.registry.tokens import TokenService

pytestmark = pytest.mark.docker


def test_pushed_republished_and_deleted(registry: Held, environ: dict[str, str]) -> None:
    """The whole life of a tag, as a watch sees it."""
    first = registry.push("team/app", "1.0", files={"answer": "1"})
    registry.push("team/app", "1.1", files={"answer": "2"})
    asked = Registry.from_environ(environ)
    repository = f"{registry.host}/team/app"
    assert sorted(asked.tags(repository)) == ["1.0", "1.1"]
    assert asked.digest(f"{repository}:1.0") == first
    again = registry.push("team/app", "1.0", files={"answer": "3"})
    assert asked.digest(f"{repository}:1.0") == again != first
    registry.delete("team/app", again)
    assert asked.digest(f"{repository}:1.0") is None
    assert asked.tags(repository) == ("1.1",)


def test_what_an_image_says_of_itself(registry: Held, environ: dict[str, str]) -> None:
    registry.push("team/facts", "1", files={"answer": "1"})
    found = Registry.from_environ(environ).facts(f"{registry.host}/team/facts:1")
    assert found.labels == {"of": "tests"}
    assert found.environment["CUDA_VERSION"] == "11.8"


def test_images_share_the_layers_of_their_base(registry: Held, environ: dict[str, str]) -> None:
    """A pull fetches them once."""
    shared = {"shared": "x" * 50_000}
    registry.push("team/base", "1", files=shared)
    base = f"{registry.host}/team/base:1"
    registry.push("team/sizes", "1", base=base, files={"own": "1"})
    own = f"{registry.host}/team/sizes:1"
    asked = Registry.from_environ(environ)
    below, all_of_it = (list(asked.facts(reference).layers.items())[1:] for reference in (base, own))
    assert all_of_it[: len(below)] == below
    assert len(all_of_it) == len(below) + 1
    assert all(size > 0 for _, size in all_of_it)


def test_a_repository_that_is_not_there(registry: Held, environ: dict[str, str]) -> None:
    with pytest.raises(RegistryDenied, match=f"^{registry.host}: has no repository of team/nothing"):
        Registry.from_environ(environ).tags(f"{registry.host}/team/nothing")


def test_a_missing_image_is_told_before_anything_is_launched(
    public: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first image was measured before the second one was found to be missing."""
    monkeypatch.setattr(bounded_http, "FIRST_PAUSE_S", 0.1)
    public.push("team/there", "1", files={"answer": "1"})
    (tmp_path / "train.py").write_text("print('ran')\n")
    monkeypatch.chdir(tmp_path)
    for gone in (f"{public.host}/team/there:2", "127.0.0.1:9/team/there:2"):  # where no registry listens
        asked = ["try", f"{public.host}/team/there:1", gone, "--", "python", "train.py"]
        assert run(asked) == exit_codes.UNAVAILABLE
        assert f"nothing was launched: {gone}: cannot be pulled: " in capsys.readouterr().err
        assert not (tmp_path / "reports").exists()


# ---------------------------------------------------------------- nobody, and the wrong one


def test_anonymous_as_on_nvcr(guarded: Held, tokens: TokenService, tmp_path: Path) -> None:
    """Anyone may read, with a token that needs no login."""
    guarded.push("team/open", "1", files={"answer": "1"})
    tokens.asked.clear()
    asked = Registry.from_environ({"DOCKER_CONFIG": str(tmp_path)})
    assert asked.tags(f"{guarded.host}/team/open") == ("1",)
    assert [query["scope"] for query in tokens.asked] == [["repository:team/open:pull"]]


@pytest.mark.parametrize("registry", ["private", "guarded"], indirect=True)
def test_a_wrong_login_is_refused_without_being_told(registry: Held, tmp_path: Path) -> None:
    secret = "wrong-but-secret"
    config = docker_config(tmp_path / "docker", registry.host, password=secret)
    with pytest.raises(RegistryDenied, match="docker login") as caught:
        Registry.from_environ({"DOCKER_CONFIG": str(config)}).tags(f"{registry.host}/team/app")
    assert secret not in str(caught.value)
