"""Preparing images: what is installed, what is reused, and which errors say that an image is not available."""

from __future__ import annotations

import fcntl
import json
import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import docker as docker_sdk
import pytest

from harness.errors import ImageUnavailable
from harness.model import Build, Install, Prepared, Scenario, Variant
from harness.run import open_engine
from harness.run.docker import containers
from harness.run.process import environments
from harness.run.process.engine import ProcessEngine
from harness.run.trial.payload import pack
from tests.players.world import BASE, WHERE, World, host, image, installed, pulled, quiet

BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


@pytest.mark.index
def test_installed_package_is_what_the_agent_sees(installing: World) -> None:
    said: list[str] = []
    prepared = installing.engine.prepare(installed("six==1.16.0"), said.append)
    trial = installing.trial("quiet", prepared=prepared)
    assert (trial.facts.packages or {})["six"] == "1.16.0"
    assert prepared.digest.startswith("sha256:")
    assert trial.image.digest == prepared.digest


@pytest.mark.index
def test_an_image_is_made_once_and_its_identity_stays(installing: World) -> None:
    said: list[str] = []
    first = installing.engine.prepare(installed("six==1.16.0"), quiet)
    again = installing.engine.prepare(installed("six==1.16.0"), said.append)
    assert (again.reference, again.digest) == (first.reference, first.digest)
    assert not [line for line in said if "install" in line]
    assert installing.engine.prepare(installed("six==1.15.0"), quiet).digest != first.digest


@pytest.mark.docker
def test_an_image_is_searched_for_its_python_once(docker: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection of a sweep made a container to look for it."""
    prepared = docker.engine.prepare(pulled(BASE), quiet)
    monkeypatch.delattr(containers, "created")
    with closing(World.open("docker", docker.environ).engine) as another:
        assert another.prepare(pulled(BASE), quiet) == prepared


@pytest.mark.index
def test_at_hand_is_what_needs_no_work(installing: World) -> None:
    """A search first runs versions that cost no download."""
    installing.engine.prepare(installed("six==1.16.0"), quiet)
    assert installing.engine.look(installed("six==1.16.0"), quiet) is not None
    assert installing.engine.look(installed("six==99.9"), quiet) is None
    assert installing.engine.look(installed("six==1.16.0", python="3.99"), quiet) is None


@pytest.mark.index
def test_version_that_is_not_on_the_index(installing: World) -> None:
    with pytest.raises(ImageUnavailable, match=r"^matrix\.yaml:7: series\.tested: tested 1: .*six==99\.9") as caught:
        installing.engine.prepare(installed("six==99.9"), quiet)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- in virtual environments


def test_an_engine_without_containers_takes_no_images(in_environments: World) -> None:
    told = f"needs a container engine; this host is engine: {in_environments.kind}"
    with pytest.raises(ImageUnavailable, match=told):
        in_environments.engine.prepare(pulled(BASE), quiet)


def test_missing_interpreter_is_told_with_those_that_are_there(in_environments: World) -> None:
    with pytest.raises(ImageUnavailable, match=r"no Python 3\.99 on this machine; it has: .*3\.\d+\.\d+"):
        in_environments.engine.prepare(installed(python="3.99"), quiet)


def test_half_made_environment_is_made_anew(in_environments: World) -> None:
    """The state after a kill -9 in the middle of an install: everything exists but the
    marker, which is written last.
    """
    prepared = in_environments.engine.prepare(installed(), quiet)
    folder = Path(prepared.reference).parents[1]
    (folder / environments.MARKER).unlink()
    (folder / "half").write_text("made")
    again = in_environments.engine.prepare(installed(), quiet)
    assert again.digest == prepared.digest
    assert not (folder / "half").exists()


def test_without_cgroups_the_memory_limit_still_holds(process: World, tmp_path: Path) -> None:
    engine = ProcessEngine(host("process"), environ=process.environ, cgroup_root=tmp_path)
    other = World(kind="process", engine=engine, environ=process.environ)
    trial = other.trial("eat", memory_bytes=256 << 20)
    assert trial.end == "oom", trial.message


# ---------------------------------------------------------------- the Docker engine

docker_only = pytest.mark.docker


@docker_only
def test_image_of_the_engine_is_used_by_its_id(docker: World, client: docker_sdk.DockerClient) -> None:
    prepared = docker.engine.prepare(pulled(BASE), quiet)
    assert prepared.reference == client.images.get(BASE).id


@docker_only
@pytest.mark.index
def test_overlay_keeps_the_base_and_nothing_of_us(docker: World, client: docker_sdk.DockerClient) -> None:
    """The image has no proxy, no CA bundle and no entrypoint of ours: only the packages are new."""
    environ = {**docker.environ, "no_proxy": "proxy-mark.example", "SSL_CERT_FILE": str(BUNDLE)}
    engine = open_engine(host("docker"), environ=environ, say=quiet)
    try:
        base = built_base(engine, client)
        prepared = engine.prepare(image(Install(base=base, python=None, packages=("six==1.14.0",))), quiet)
    finally:
        engine.close()
    made, before = (client.api.inspect_image(name) for name in (prepared.reference, base))
    for name in ("Entrypoint", "Cmd", "WorkingDir", "User"):
        assert made["Config"][name] == before["Config"][name], name
    assert set(made["Config"]["Env"]) - {"container=podman"} == set(before["Config"]["Env"])
    assert "proxy-mark" not in json.dumps([made, client.api.history(prepared.reference)])
    added = changed_files(client, prepared.reference)
    assert any("six" in name for name in added)
    assert not [name for name in added if re.search(r"\.pem|\.crt|harness", name)]
    assert not client.containers.list(all=True, filters={"ancestor": base})


@docker_only
@pytest.mark.index
def test_an_overlay_made_again_is_the_same(docker: World, client: docker_sdk.DockerClient) -> None:
    """After `clean --images`, or on a second machine, earlier measurements are reused."""
    first = docker.engine.prepare(installed("six==1.13.0"), quiet)
    assert docker.engine.prepare(installed("six==1.13.0"), quiet) == first
    client.api.remove_image(client.images.get(first.reference).tags[0])
    again = docker.engine.prepare(installed("six==1.13.0"), quiet)
    assert again.reference != first.reference
    assert again.digest == first.digest


@docker_only
@pytest.mark.index
def test_a_requirement_is_never_an_option_of_pip(docker: World) -> None:
    with pytest.raises(ImageUnavailable, match="--version"):
        docker.engine.prepare(installed("--version"), quiet)


def built_base(engine: Any, client: docker_sdk.DockerClient) -> str:
    text = f'FROM {BASE}\nENV A=1\nWORKDIR /tmp\nUSER nobody\nENTRYPOINT ["/usr/bin/env"]\nCMD ["python3"]\n'
    client.images.build(fileobj=BytesIO(text.encode()), tag="harness-test/base:1", rm=True)
    return "harness-test/base:1"


def changed_files(client: docker_sdk.DockerClient, reference: str) -> list[str]:
    """Return the names in the newest layer of an image."""
    content = BytesIO(b"".join(client.images.get(reference).save()))
    with tarfile.open(fileobj=content) as saved:
        manifest = saved.extractfile("manifest.json")
        assert manifest is not None
        layer = saved.extractfile(json.load(manifest)[0]["Layers"][-1])
        assert layer is not None
        with tarfile.open(fileobj=layer) as files:
            return files.getnames()


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Path]:
    """Write a build context whose image prints a banner before it starts anything, as NVIDIA's images do."""
    (tmp_path / "banner").write_text('#!/bin/sh\necho "== A banner =="\nprintf "no line end"\nexec "$@"\n')
    (tmp_path / "banner").chmod(0o755)
    (tmp_path / "Dockerfile").write_text(
        f"FROM {BASE} AS early\nCOPY .harness/ca.pem /ca.pem\nFROM {BASE}\nARG MADE_FOR=nobody\n"
        'LABEL made_for=$MADE_FOR\nCOPY banner /banner\nENTRYPOINT ["/banner"]\n'
    )
    return tmp_path


def build_of(context: Path, **args: str) -> Build:
    return Build(context=context, args=tuple(args.items()))


@docker_only
def test_built_image_runs_behind_its_own_entrypoint(
    docker: World, client: docker_sdk.DockerClient, context: Path
) -> None:
    prepared = docker.engine.prepare(image(build_of(context, MADE_FOR="us")), quiet)
    assert client.images.get(prepared.reference).labels["made_for"] == "us"
    assert docker.trial("quiet", prepared=prepared).end == "completed"


@docker_only
def test_at_hand_of_builds_and_pulls(docker: World, client: docker_sdk.DockerClient, context: Path) -> None:
    (context / "new").write_text(os.urandom(8).hex())
    asked = image(build_of(context))
    assert docker.engine.look(asked, quiet) is None
    made = docker.engine.prepare(asked, quiet)
    assert docker.engine.look(asked, quiet) is not None
    client.api.remove_image(made.reference)
    assert docker.engine.look(asked, quiet) is None
    assert docker.engine.look(pulled(BASE), quiet) is not None
    assert docker.engine.look(pulled("registry.invalid/none:1"), quiet) is None
    assert docker.engine.look(pulled("No Name"), quiet) is None
    assert docker.engine.look(image(build_of(context / "missing")), quiet) is None


@docker_only
def test_unchanged_context_is_not_built_again(docker: World, context: Path) -> None:
    said: list[str] = []
    first = docker.engine.prepare(image(build_of(context)), quiet)
    assert docker.engine.prepare(image(build_of(context)), said.append).digest == first.digest
    assert said == []
    (context / "banner").write_text('#!/bin/sh\nexec "$@"\n')
    assert docker.engine.prepare(image(build_of(context)), quiet).digest != first.digest


def test_environments_are_removed_but_not_one_that_is_being_made(process: World, tmp_path: Path) -> None:
    """A cache that cannot be emptied fills the disk; emptying it under a running install makes that install fail."""
    environ = {**process.environ, "HARNESS_CACHE": str(tmp_path)}
    alone = World.open("process", environ)
    alone.engine.prepare(installed(), quiet)
    (folder,) = [path for path in (tmp_path / "environments").iterdir() if path.is_dir()]
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert alone.engine.remove_images(quiet) == ()
    assert alone.engine.remove_images(quiet) == (str(folder),)
    assert not folder.exists()


@docker_only
@pytest.mark.parametrize(
    ("command", "told"),
    [
        pytest.param(
            "echo the-reason-why >&2; exit 9",
            r"^matrix\.yaml:7: .*the build failed: the-reason-why: .*(code:|status) 9",
            id="reason-first",
        ),
        pytest.param(
            "head -c 9 /dev/zero > /dev/full",
            r"No space left on device.*; free some space on that engine: `harness clean --images`",
            id="full-disk",
        ),
    ],
)
def test_a_failing_build_tells_its_reason_and_what_to_do(docker: World, context: Path, command: str, told: str) -> None:
    (context / "Dockerfile").write_text(f"FROM {BASE}\nRUN {command}\n")
    with pytest.raises(ImageUnavailable, match=told):
        docker.engine.prepare(image(build_of(context)), quiet)


@docker_only
def test_entrypoint_that_starts_nothing_can_be_skipped(docker: World, context: Path) -> None:
    (context / "banner").write_text("#!/bin/sh\necho only a banner\nexit 4\n")
    prepared = docker.engine.prepare(image(build_of(context)), quiet)
    trial = docker.trial("quiet", prepared=prepared)
    assert trial.end == "infrastructure"
    assert "only a banner" in trial.message
    assert "`entrypoint: false`" in trial.message
    skipped = Prepared(
        image=image(build_of(context), keep_entrypoint=False), reference=prepared.reference, digest=prepared.digest
    )
    assert docker.trial("quiet", prepared=skipped).end == "completed"


@docker_only
def test_image_without_python_runs_what_needs_none(docker: World, context: Path) -> None:
    """A server in C has no Python, no shell and no C library beside it; the agent brings its own."""
    (context / "Dockerfile").write_text("FROM scratch\nCOPY banner /banner\n")
    prepared = docker.engine.prepare(image(build_of(context)), quiet)
    assert prepared.lacks_python
    with (
        pytest.raises(ImageUnavailable, match="no python3 or python on this image's PATH"),
        docker.engine.launch(docker.launch("quiet", prepared=prepared)),
    ):
        pass
    gone = Scenario(name="gone", where=WHERE, command=("/gone",), timeout_s=60.0)
    launch = replace(docker.launch("quiet", prepared=prepared), scenario=gone, payload=pack(Variant(scenario=gone)))
    trial = docker.run(launch)
    assert (trial.end, trial.message) == ("setup", "cannot start /gone: No such file or directory")
    assert trial.facts.agent, "it ran"
    assert trial.facts.python is None, "the harness's own is not the image's"


@docker_only
def test_removed_from_outside_is_infrastructure(docker: World, client: docker_sdk.DockerClient) -> None:
    def remove(step: int, rss_kib: float | None) -> None:
        for container in client.containers.list(filters={"label": f"harness.run={docker.run_id}"}):
            container.remove(force=True)

    trial = docker.trial("hang", on_step=remove, timeout_s=60.0)
    assert trial.end == "infrastructure", trial


@docker_only
def test_limits_and_rights_of_a_container(docker: World, client: docker_sdk.DockerClient) -> None:
    """What an untrusted image gets: no network, no capabilities, no swap, no new privileges."""
    with docker.engine.launch(docker.launch("quiet", memory_bytes=256 << 20)) as session:
        (container,) = client.containers.list(filters={"label": f"harness.run={docker.run_id}"})
        settings = container.attrs["HostConfig"]
        rights = container.exec_run(["grep", "^Cap", "/proc/1/status"]).output.decode().split()[1::2]
        named = container.exec_run(["sh", "-c", 'grep -w "$(hostname)" /etc/hosts'])
        assert session.receive(30.0) is not None
    assert settings["NetworkMode"] == "none"
    assert named.exit_code == 0, "torchrun looked for its own name until the time limit"
    assert set(rights) == {"0" * 16}
    assert settings["SecurityOpt"] == ["no-new-privileges"]
    assert settings["Memory"] == settings["MemorySwap"] == 256 << 20
    assert settings["PidsLimit"] == 4096
    assert settings["Init"] is True
    assert settings["ShmSize"] == 1 << 30
    assert WHERE.file not in json.dumps(container.attrs["Config"]["Env"])
