"""Engines, registries and indexes that do not exist, refuse or hang up: one line, and never the image's fault."""

from __future__ import annotations

import errno
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import docker as docker_sdk
import pytest
from docker.errors import APIError, DockerException
from paramiko import SSHException

from harness.errors import EngineUnreachable, ImageUnavailable, InfrastructureError, Interrupted
from harness.model import Build, Image, Install
from harness.run.docker.docker_client import engine_errors, explanation, remedy, with_time_limit
from harness.run.docker.engine import DockerEngine, open_engine
from harness.run.images.build_images import name_of_build
from tests.players.servers import Reply, answering_paths, told
from tests.players.world import BASE, World, engine_named, host, image, pulled, quiet

docker_only = pytest.mark.docker
PLACE = r"^matrix\.yaml:2: hosts\.here: "


@contextmanager
def listening(answer: bytes) -> Iterator[int]:
    """Run a server that answers every client with `answer` and hangs up; return its port."""

    def serve(server: socket.socket) -> None:
        while True:
            try:
                caller, _ = server.accept()
            except OSError:
                return
            with caller:
                caller.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ("tcp://127.0.0.1:1", r"check that it runs and listens there \(Connection refused\)"),
        (
            "ssh://127.0.0.1:1",
            r"`ssh` to it and try `docker version` there \(Unable to connect to port 1 on 127.0.0.1\)",
        ),
        ("tcp://no-such-machine.invalid:1", "its name cannot be resolved"),
        ("ssh://no-such-machine.invalid", "its name cannot be resolved"),
    ],
)
def test_an_engine_that_is_not_there(engine: str, told: str) -> None:
    """Each error says what to do: `engine: process` does not start another machine's engine."""
    with pytest.raises(EngineUnreachable, match=f"{PLACE}Cannot connect to the Docker daemon at {engine}; {told}"):
        open_engine(host(engine), environ={}, say=quiet)


def test_an_address_where_no_engine_answers() -> None:
    refused = pytest.raises(EngineUnreachable, match="the service that answers there")
    with answering_paths({}, Reply(status=404)) as address, refused:
        open_engine(host(f"tcp://{address}"), environ={}, say=quiet)


@pytest.mark.parametrize("scheme", ["ssh", "tcp"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # paramiko's own thread
def test_a_port_where_something_else_answers(scheme: str) -> None:
    with listening(b"220 mail.example\r\n") as port, pytest.raises(EngineUnreachable, match=f"{PLACE}Cannot connect"):
        open_engine(host(f"{scheme}://127.0.0.1:{port}"), environ={}, say=quiet)


def test_an_ssh_server_that_is_asked_by_tcp() -> None:
    told = pytest.raises(EngineUnreachable, match="an SSH server answers there; use `engine: ssh://")
    with listening(b"SSH-2.0-OpenSSH_9.2p1\r\n") as port, told:
        open_engine(host(f"tcp://127.0.0.1:{port}"), environ={}, say=quiet)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:notaport", "ssh://h:99999", "tcp://[::1"])
def test_an_address_of_the_environment_that_is_none(address: str) -> None:
    with pytest.raises(EngineUnreachable, match=f"{PLACE}Cannot connect to the Docker daemon at {re.escape(address)}"):
        open_engine(host("docker"), environ={"DOCKER_HOST": address}, say=quiet)


def test_an_unknown_context_is_not_the_local_engine() -> None:
    """A sweep on the wrong machine would blame the wrong card."""
    with pytest.raises(EngineUnreachable, match=f"{PLACE}no Docker context 'lab-4090'; the contexts are: default"):
        open_engine(host("context:lab-4090"), environ={}, say=quiet)
    with pytest.raises(EngineUnreachable, match="DOCKER_CONTEXT: no Docker context 'lab-4090'"):
        open_engine(host("docker"), environ={"DOCKER_CONTEXT": "lab-4090"}, say=quiet)


@pytest.mark.parametrize(
    ("current", "meta", "says"),
    [
        ("gone", None, "no Docker context 'gone'; the contexts are: default, lab "),
        ("lab", "{", "the Docker context 'lab' cannot be read from .*meta.json; see `docker context inspect lab`"),
        ("lab", '{"Name": "lab"}', "the Docker context 'lab' cannot be read from "),
    ],
)
def test_a_current_context_that_is_none_is_not_the_local_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, current: str, meta: str | None, says: str
) -> None:
    """An unknown one was ignored, and one that could not be read ended in a traceback."""
    file = tmp_path / "contexts" / "meta" / sha256(b"lab").hexdigest() / "meta.json"
    file.parent.mkdir(parents=True)
    file.write_text(meta or '{"Name": "lab", "Metadata": {}, "Endpoints": {"docker": {"Host": "tcp://127.0.0.1:1"}}}')
    (tmp_path / "config.json").write_text(json.dumps({"currentContext": current}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with pytest.raises(EngineUnreachable, match=rf"{PLACE}currentContext of ~/\.docker/config\.json: {says}"):
        open_engine(host("docker"), environ={}, say=quiet)
    if meta is None:
        with pytest.raises(EngineUnreachable, match="Cannot connect to the Docker daemon at context:lab"):
            open_engine(host("docker"), environ={"DOCKER_CONTEXT": "lab"}, say=quiet)


def test_a_user_who_may_not_use_the_engine_is_told_so() -> None:
    """They were told to start it."""
    refused = DockerException("Error while fetching server API version")
    refused.__cause__ = PermissionError(errno.EACCES, "Permission denied")
    assert remedy(refused, address="unix:///var/run/docker.sock").startswith("this user may not use it; join the group")


@docker_only
def test_a_known_context_is_used(docker: World) -> None:
    with closing(open_engine(host("context:default"), environ={}, say=quiet)) as engine:
        assert engine.facts["name"] == docker.engine.facts["name"]


@pytest.mark.parametrize("error", [SSHException("closed"), EOFError(), ConnectionResetError(104, "reset")])
def test_a_connection_that_is_lost_on_the_way(error: Exception) -> None:
    with (
        pytest.raises(EngineUnreachable, match=r"^m.yaml:1: k: the connection .* was lost: .*; check that"),
        engine_errors("m.yaml:1: k"),
    ):
        raise error


def test_a_full_disk_says_what_to_do() -> None:
    said = APIError("x", explanation="write /var/lib/docker/x: no space left on device")
    with (
        pytest.raises(InfrastructureError, match=r"^m.yaml:1: k: .*no space left.*harness clean --images") as caught,
        engine_errors("m.yaml:1: k"),
    ):
        raise said
    assert not isinstance(caught.value, EngineUnreachable | ImageUnavailable)


def test_what_a_hook_said_comes_first() -> None:
    """The hook's message came last, after more text than a table has room for: the reason for the refusal was not
    visible.
    """
    chain = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container"
    hook = "error running hook #0: error running hook: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'"
    said = APIError(
        "x", explanation=f"{chain} process: {hook}\nnvidia-container-cli: device error: 7: unknown: unknown"
    )
    with (
        pytest.raises(
            InfrastructureError,
            match=r"refused: its hook failed: Auto-detected mode as 'legacy' nvidia-container-cli: device error: 7: u",
        ),
        engine_errors("m.yaml:1: k"),
    ):
        raise said


def test_a_hook_that_says_nothing_is_told_to_be_silent() -> None:
    hook = "unable to start container process: error running hook #0: error running hook: exit status 3, stdout: , "
    assert explanation(APIError("x", explanation=f"runc create failed: {hook}stderr: : unknown")) == (
        "its hook failed without a message (exit status 3)"
    )


def test_a_context_that_cannot_be_read_is_not_the_engines_fault(tmp_path: Path) -> None:
    client = docker_sdk.DockerClient(base_url="unix:///nonexistent", version="1.41")
    source = Build(context=tmp_path, args=())
    with closing(client):
        call = partial(name_of_build, client, source, image=image(source))
        with pytest.raises(ImageUnavailable, match=r"^matrix\.yaml:7: series\.tested: .*: no Dockerfile there"):
            call()
        (tmp_path / "Dockerfile").write_bytes(b"FROM \xff\n")
        with pytest.raises(ImageUnavailable, match=r"^matrix\.yaml:7: series\.tested: .*: cannot be read: .*utf-8"):
            call()


FULL = told({"message": "mkdir /var/lib/docker/overlay2/x: no space left on device"}, status=500)
VERSION = told({"ApiVersion": "1.41"})
FULL_ENGINE = {
    "/version": VERSION, "/info": told({}),
    "/images/there:1/json": told({"Id": "sha256:1", "RepoDigests": [], "Config": {"Env": []}}),
}  # fmt: skip
"""An engine that knows an image but can do nothing more, because its disk is full."""


def install_over(base: str) -> Image:
    return image(Install(base=base, python=None, packages=("six",)))


@pytest.mark.parametrize(
    ("call", "place"),
    [
        (lambda engine: engine.prepare(pulled("there:1"), quiet), "matrix.yaml:7: series.tested: "),
        (lambda engine: engine.prepare(install_over("there:1"), quiet), "matrix.yaml:7: series.tested: "),
        (lambda engine: engine.remove_leftovers(), "matrix.yaml:2: hosts.here: "),
        (lambda engine: engine.remove_images(quiet), "matrix.yaml:2: hosts.here: "),
    ],
)
def test_what_an_engine_refuses_is_never_the_images_fault(call: Callable[[DockerEngine], object], place: str) -> None:
    told = pytest.raises(InfrastructureError, match=r"no space left on device; free some space .*clean --images")
    with answering_paths(FULL_ENGINE, FULL) as address:
        engine = open_engine(host(f"tcp://{address}"), environ={}, say=quiet)
        with closing(engine), told as caught:
            call(engine)
    assert str(caught.value).startswith(place)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"/version": VERSION}, "the engine refused: .*; "),
        ({"/version": told({"ApiVersion": "1.39"})}, r".*too old; .* \(it has API version 1\.39\)$"),
        ({"/version": VERSION, "/info": told({"BuildahVersion": "1.28.2", "ServerVersion": "4.3.1"})},
         "Podman 4.3.1 is too old; 5.4 or later is needed$"),
    ],
    ids=["tells nothing", "old Docker", "old Podman"],
)  # fmt: skip
def test_an_engine_that_is_too_old_or_tells_nothing_of_itself(known: dict[str, Reply], said: str) -> None:
    """It would accept a GPU request and start the container without a GPU, and the lease of such a Podman would be lost
    within a minute.
    """
    with answering_paths(known, FULL) as address, pytest.raises(EngineUnreachable, match=PLACE + said):
        open_engine(host(f"tcp://{address}"), environ={}, say=quiet)


def test_a_connection_that_comes_to_nothing_is_given_up() -> None:
    with pytest.raises(TimeoutError, match=r"no answer within 0 s"):
        with_time_limit(threading.Event().wait, seconds=0.2)
    with pytest.raises(KeyError):
        with_time_limit(lambda: {}["x"])
    assert with_time_limit(lambda: 3) == 3


# ---------------------------------------------------------------- trying again


@pytest.fixture
def impatient() -> Iterator[DockerEngine]:
    """Return an engine that tries twice more, after short pauses."""
    with closing(open_engine(host("docker"), environ=engine_named(), say=quiet, waits_s=(0.2, 0.4))) as engine:
        yield engine


class Said(list[str]):
    def __call__(self, text: str) -> None:
        self.append(text)

    @property
    def tries(self) -> int:
        return len({line.split(" s:")[0] for line in self if "trying again" in line})


@docker_only
@pytest.mark.parametrize(
    ("wanted", "help_text"),
    [
        (pulled("localhost:1/no-such-image:1"), "docker login"),
        (image(Install(base="localhost:1/no-base:1", python=None, packages=())), "`make base` builds a local base"),
    ],
)
def test_a_registry_that_is_down_is_asked_again_once(impatient: DockerEngine, wanted: Image, help_text: str) -> None:
    """The next image of the series does not wait again."""
    said = Said()
    for tries in (2, 0):
        said.clear()
        with pytest.raises(
            ImageUnavailable, match=rf"^matrix\.yaml:7: series\.tested: .*cannot be pulled: .*{help_text}"
        ):
            impatient.prepare(wanted, said)
        assert len([line for line in said if "trying again" in line]) == (3 if tries else 0)


OF = "application/vnd.docker"
UNKNOWN = told({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}, status=404)
DIFF = f"sha256:{0:064}"


def digest(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def other_content() -> dict[str, Reply]:
    """Return the replies of a registry whose layer is not the one that the image's manifest names."""
    rootfs = {"type": "layers", "diff_ids": [DIFF]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}).encode()
    layer = {"mediaType": f"{OF}.image.rootfs.diff.tar.gzip", "digest": digest(b"the layer"), "size": len(b"the layer")}
    named = {"mediaType": f"{OF}.container.image.v1+json", "digest": digest(config), "size": len(config)}
    kind = f"{OF}.distribution.manifest.v2+json"
    manifest = told({"schemaVersion": 2, "mediaType": kind, "config": named, "layers": [layer]}, kind=kind)
    blobs = {digest(config): told(config), layer["digest"]: told(b"something")}
    return {"/manifests/1": manifest, f"/manifests/{digest(manifest.body)}": manifest, **blobs}


def other_machines() -> Reply:
    """Return the reply of a registry that has the image only for other platforms."""
    kind, platform = f"{OF}.distribution.manifest.list.v2+json", {"architecture": "s390x", "os": "linux"}
    entry = {"mediaType": f"{OF}.distribution.manifest.v2+json", "size": 2, "digest": DIFF, "platform": platform}
    return told({"schemaVersion": 2, "mediaType": kind, "manifests": [entry]}, kind=kind)


@docker_only
@pytest.mark.parametrize(
    ("known", "other", "said", "again"),
    [
        ({}, UNKNOWN, r"cannot be pulled: .*manifest unknown", False),
        ({}, told(b"<h1>Too many</h1>", status=429, kind="text/html"),
         r"cannot be pulled: .*HTTP 429.*; the registry is busy or broken; repeat the command", True),
        (other_content(), told(b""),
         r"verification failed .*; the registry, or a proxy in front of it, sent someth", None),
        ({}, other_machines(), r"no matching manifest.*; it does not support that host's platform", None),
    ],
    ids=["no such image", "a busy proxy", "other content", "other machines"],
)  # fmt: skip
def test_what_a_registry_answers_is_told_and_asked_again_only_if_that_may_help(
    impatient: DockerEngine, *, known: dict[str, Reply], other: Reply, said: str, again: bool | None
) -> None:
    """Neither another name nor a login would help against content that is not the image's."""
    heard, refused = Said(), pytest.raises(ImageUnavailable, match=said)
    with answering_paths({"/v2/": Reply(), **known}, other) as address, refused:
        impatient.prepare(pulled(f"{address}/x:1"), heard)
    assert again is None or bool(heard.tries) == again


@docker_only
def test_a_step_that_times_out_is_the_dockerfiles_matter(impatient: DockerEngine, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {BASE}\nRUN echo connection timed out; exit 7\n")
    said = Said()
    with pytest.raises(ImageUnavailable, match=r"the build failed: .*code: 7"):
        impatient.prepare(image(Build(context=tmp_path, args=())), said)
    assert said.tries == 0


@docker_only
def test_the_wait_can_be_interrupted() -> None:
    def stop(text: str) -> None:
        if "trying again" in text:
            raise Interrupted("interrupted")

    with closing(open_engine(host("docker"), environ=engine_named(), say=quiet)) as engine, pytest.raises(Interrupted):
        engine.prepare(pulled("localhost:1/no-such-image:1"), stop)


@docker_only
def test_an_index_that_is_down_is_told_as_such(client: docker_sdk.DockerClient) -> None:
    """pip itself says that no version of the package exists."""
    text = f"FROM {BASE}\nENV PIP_RETRIES=1\n"
    client.images.build(fileobj=BytesIO(text.encode()), tag="harness-test/retries:1", rm=True)
    environ, said = {**engine_named(), "https_proxy": "http://127.0.0.1:9"}, Said()
    source = Install(base="harness-test/retries:1", python=None, packages=("six==1.10.0",))
    told = pytest.raises(ImageUnavailable, match=r"^matrix\.yaml:7: .*tested 1: the package index cannot be reached")
    with closing(open_engine(host("docker"), environ=environ, say=quiet, waits_s=(0.2,))) as engine, told:
        engine.prepare(image(source), said)
    assert said.tries == 1
