"""Engines reached from elsewhere: a whole trial with each kind of address, and the error if it does not work."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import EngineUnreachable
from harness.model import Steps, Trial
from harness.run.docker.lease import holder_of
from tests.lab.running import Lab
from tests.lab.ways import KEY, home, make_certificates, run
from tests.players.world import World, in_slices, quiet
from tests.serving import free_port

pytestmark = pytest.mark.docker


def tls(folder: Path) -> dict[str, str]:
    return {**os.environ, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(folder)}


def whole_trial(engine: str, environ: Mapping[str, str]) -> World:
    """Open the host, lease it, run a trial and leave it: nothing remains."""
    world = World.open(engine, environ)
    with closing(world.engine), world.engine.lease(quiet, lambda: False) as lease:
        trial = world.trial("quiet")
        lease()
        assert trial.end == "completed", trial.message
        assert trial.trace is not None
        assert world.engine.remove_leftovers() == 0
    return world


def test_by_ssh(lab: Lab) -> None:
    with home(lab.sshd.home):
        world = whole_trial(lab.sshd.address, os.environ)
    with closing(lab.old.client()) as client:
        assert world.engine.facts["engine"] == f"docker {client.version()['Version']}"
        assert holder_of(client, place="old") is None
        assert client.containers.list(all=True) == []


def test_launches_take_turns_by_ssh(lab: Lab) -> None:
    """Together they took all ten sessions of the one connection, and the rest of the sweep was lost."""
    with home(lab.sshd.home):
        world = World.open(lab.sshd.address, os.environ)
        kept: list[Trial] = []
        with closing(world.engine):
            in_slices(world, kept, *["clock"] * 8, steps=Steps(first=15, budget=15))
    assert [trial.end for trial in kept] == ["completed"] * 8, [trial.message for trial in kept]


def test_by_tcp(lab: Lab) -> None:
    whole_trial(lab.tcp_address, os.environ)


def test_by_tls_whatever_bundle_the_proxy_needs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt")
    whole_trial(lab.tls_address, tls(lab.certificates))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK leaves a context's file open
def test_by_a_context_with_certificates_of_its_own(lab: Lab, tmp_path: Path) -> None:
    files = {"host": lab.tls_address, "ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
    words = [f"{name}={value if name == 'host' else lab.certificates / value}" for name, value in files.items()]
    with home(tmp_path):
        subprocess.run(
            ["docker", "context", "create", "lab", "--docker", ",".join(words)], check=True, capture_output=True
        )
        with pytest.raises(EngineUnreachable, match=r"no Docker context 'lab'; .* ~/\.docker/config\.json exists"):
            World.open("context:lab", os.environ)
        (tmp_path / ".docker/config.json").write_text("{}")
        whole_trial("context:lab", os.environ)
        with pytest.raises(EngineUnreachable, match="no Docker context 'other'; the contexts are: default, lab"):
            World.open("context:other", os.environ)


# ---------------------------------------------------------------- barred


def refusal(engine: str, environ: Mapping[str, str]) -> str:
    with pytest.raises(EngineUnreachable) as caught:
        World.open(engine, environ)
    said = str(caught.value)
    assert said.startswith("matrix.yaml:2: hosts.here: Cannot connect to the Docker daemon at ")
    assert "\n" not in said
    return said


def another_key(ssh: Path) -> None:
    (ssh / "id_ed25519").unlink()
    run(*KEY, str(ssh / "id_ed25519"))


def another_host_key(ssh: Path) -> None:
    place = (ssh / "known_hosts").read_text().split()[0]
    (ssh / "known_hosts").write_text(f"{place} {(ssh / 'id_ed25519.pub').read_text()}")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda ssh: (ssh / "id_ed25519").unlink(), "its SSH server refused the key; `ssh` to it must work"),
        (another_key, "its SSH server refused the key; `ssh` to it must work without a prompt"),
        (lambda ssh: (ssh / "known_hosts").unlink(), "its host key is not known here; `ssh` to it once"),
        (another_host_key, "its host key has changed; find out why"),
    ],
)
def test_ssh_that_is_refused(lab: Lab, tmp_path: Path, spoil: Callable[[Path], None], said: str) -> None:
    shutil.copytree(lab.sshd.home / ".ssh", tmp_path / ".ssh")
    spoil(tmp_path / ".ssh")
    with home(tmp_path):
        assert said in refusal(lab.sshd.address, os.environ)


def test_tls_that_does_not_fit(lab: Lab, tmp_path: Path) -> None:
    other, mixed = make_certificates(tmp_path / "other"), tmp_path / "mixed"
    shutil.copytree(other, mixed)
    shutil.copy(lab.certificates / "ca.pem", mixed)  # we trust the engine, but it does not trust us
    assert "it requires TLS; set DOCKER_TLS_VERIFY=1" in refusal(lab.tls_address, os.environ)
    assert "it does not speak TLS; unset DOCKER_TLS_VERIFY" in refusal(lab.tcp_address, tls(lab.certificates))
    for folder in (other, mixed):
        assert "its certificate and those in DOCKER_CERT_PATH do not match" in refusal(lab.tls_address, tls(folder))
    assert "DOCKER_CERT_PATH must be a folder with ca.pem" in refusal(lab.tls_address, tls(tmp_path / "none"))


def test_a_user_there_for_whom_docker_does_not_answer(lab: Lab) -> None:
    """The SSH server accepts us, but there is no engine: it is down, or that user may not use it."""
    alone = replace(lab.sshd, folder=lab.sshd.folder / "alone", engine="unix:///nonexistent", port=free_port())
    alone.start()
    try:
        with home(alone.home):
            assert "`docker` does not answer there; `ssh` to it and try" in refusal(alone.address, os.environ)
    finally:
        alone.stop()
