"""A wait that can be given up, and what happens to the work that was waited for."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import psutil
import pytest

from harness.errors import ImageUnavailable, Interrupted
from harness.model.watching import unheard
from harness.run import interruptible
from harness.run.interruptible import BEAT_S, NetworkRetries, NetworkTrouble, run_command, streamed, unavailable
from tests.waiting import until

SOON_S = 3.0
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nword\r\n"
LAST_HEAD = HEAD.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
END = b"0\r\n\r\n"


def give_up() -> None:
    raise Interrupted("interrupted")


def test_a_command_is_told_of_while_it_runs() -> None:
    beats: list[float] = []
    command = ["sh", "-c", "sleep 1; echo out; echo err >&2; exit 3"]
    done = run_command(command, environment=os.environ, beat=lambda: beats.append(time.monotonic()))
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert len(beats) >= 2


def test_a_command_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    def beat() -> None:
        if pid_file.exists() and pid_file.read_text().strip():
            raise Interrupted("interrupted")

    with pytest.raises(Interrupted):
        run_command(["sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"], environment=os.environ, beat=beat)
    pid = int(pid_file.read_text())
    ended = lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # noqa: E731
    assert until(ended, seconds=SOON_S)


@contextlib.contextmanager
def engine(*, answer: bytes) -> Iterator[tuple[docker.APIClient, threading.Event]]:
    """Return a client of an engine that sends `answer` and then waits; the event is set when the client has hung up."""
    hung_up = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection = server.accept()[0]
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)
                connection.recv(1 << 16)  # until its end
                hung_up.set()

        thread = threading.Thread(target=serve)
        thread.start()
        client = docker.APIClient(f"tcp://127.0.0.1:{server.getsockname()[1]}", version="1.41")
        try:
            yield client, hung_up
        finally:
            client.close()
            thread.join(SOON_S)


def words(client: docker.APIClient) -> Iterator[bytes]:
    response = client.get(f"{client.base_url}/words", stream=True)
    yield from response.iter_content(chunk_size=None)


def test_all_that_comes_is_passed_on() -> None:
    with engine(answer=LAST_HEAD + END) as (client, _):
        assert list(streamed(client, lambda: words(client), beat=give_up)) == [b"word"]


def test_a_stream_that_is_left_is_hung_up() -> None:
    """Only then does an engine stop a build that prints nothing."""
    with engine(answer=HEAD) as (client, hung_up):
        with pytest.raises(Interrupted):
            list(streamed(client, lambda: words(client), beat=give_up))
        assert hung_up.wait(SOON_S)


def test_an_error_of_the_call_is_raised_where_it_is_waited_for() -> None:
    def refuse() -> Iterator[bytes]:
        raise docker.errors.NotFound("no such image")

    with contextlib.closing(docker.APIClient("tcp://127.0.0.1:1", version="1.41")) as client:
        with pytest.raises(docker.errors.NotFound, match="no such image"):
            list(streamed(client, refuse, beat=give_up))
        assert client.hooks["response"] == []


def test_a_command_that_takes_too_long_is_killed() -> None:
    with pytest.raises(TimeoutError):
        run_command(["sleep", "60"], environment={"PATH": os.environ["PATH"]}, limit_s=0.1)


def test_a_program_that_cannot_be_ended_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, a program that waits for a dead file server would block a sweep endlessly."""
    spared: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, number: spared.append(pid))
    monkeypatch.setattr(interruptible, "KILLED_S", 0.1)
    with pytest.warns(ResourceWarning, match="still running"), pytest.raises(Interrupted):
        run_command(["sleep", "60"], environment={"PATH": os.environ["PATH"]}, beat=give_up)
    (pid,) = spared
    assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


# ---------------------------------------------------------------- a network that comes back saves an image


def failing(times: int) -> Callable[[], str]:
    left = [NetworkTrouble("down")] * times

    def attempt() -> str:
        if left:
            raise left.pop()
        return "image"

    return attempt


def test_a_network_that_comes_back_costs_its_waits_only() -> None:
    slept: list[float] = []
    assert NetworkRetries((5.0, 20.0), sleep=slept.append).through(failing(2), say=unheard) == "image"
    assert sum(slept) == pytest.approx(25.0)


def test_a_network_that_stays_down_is_waited_for_once() -> None:
    slept: list[float] = []
    patience = NetworkRetries((5.0, 20.0), sleep=slept.append)
    for _ in range(3):
        with pytest.raises(NetworkTrouble, match="down"):
            patience.through(failing(9), say=unheard)
    assert sum(slept) == pytest.approx(25.0)
    assert patience.through(failing(0), say=unheard) == "image"
    assert patience.through(failing(1), say=unheard) == "image"
    assert sum(slept) == pytest.approx(30.0)


def test_every_wait_can_be_interrupted() -> None:
    def stop(text: str) -> None:
        assert text == "the network failed; trying again in 5 s: down"
        raise Interrupted("interrupted")

    slept: list[float] = []
    with pytest.raises(Interrupted):
        NetworkRetries((5.0,), sleep=slept.append).through(failing(1), say=stop)
    assert sum(slept) <= BEAT_S


@pytest.mark.parametrize(
    "said",
    [
        'Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no such host',
        'Get "http://localhost:1/v2/": dial tcp [::1]:1: connect: connection refused',
        "Get https://r.example/v2/: net/http: TLS handshake timeout",
        "read tcp 10.0.0.1:1->10.0.0.2:443: read: connection reset by peer",
        'error pulling image: Get "https://r.example/v2/": EOF',
        "received unexpected HTTP status: 503 Service Unavailable",
        "toomanyrequests: You have reached your pull rate limit",
        "HTTPSConnectionPool(host='f.example', port=443): Read timed out.",
        "error: Request failed after 3 retries in 5.9s\n  cause: HTTP status server error (503 Service Unavailable)",
        "  cause: client error (SendRequest)\n  cause: connection closed before message completed",
        "  cause: error reading a body from connection\n  cause: end of file before message length reached",
        "  cause: client error (Connect)\n  cause: dns error\n  cause: error resolving DNS",
    ],
)
def test_the_network_is_worth_another_try(said: str) -> None:
    assert isinstance(unavailable("x", place="", cause=said), NetworkTrouble)


@pytest.mark.parametrize(
    "said",
    [
        "manifest for x:1 not found: manifest unknown: manifest unknown",
        "pull access denied for x, repository does not exist or may require 'docker login'",
        "write /var/lib/docker/tmp/x: no space left on device",
        "No matching distribution found for six==99.9",
        "unauthorized: authentication required",
        "Get https://r.example/v2/: x509: certificate signed by unknown authority",
        "error: Request failed after 3 retries in 6.0s\n  cause: invalid peer certificate: UnknownIssuer",
    ],
)
def test_what_will_not_change_is_not(said: str) -> None:
    error = unavailable("x", place="", cause=said)
    assert isinstance(error, ImageUnavailable)
    assert not isinstance(error, NetworkTrouble)
