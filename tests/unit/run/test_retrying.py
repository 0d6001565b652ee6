"""Retries: a network that comes back saves an image, and nothing else is waited for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.errors import ImageUnavailable, Interrupted
from harness.run.interruptible import BEAT_S, NetworkRetries, NetworkTrouble, unavailable


def failing(times: int) -> Callable[[], str]:
    left = [NetworkTrouble("down")] * times

    def attempt() -> str:
        if left:
            raise left.pop()
        return "image"

    return attempt


def quiet(text: str) -> None:
    """Ignore all progress."""


def test_a_network_that_comes_back_costs_its_waits_only() -> None:
    slept: list[float] = []
    assert NetworkRetries((5.0, 20.0), sleep=slept.append).through(failing(2), say=quiet) == "image"
    assert sum(slept) == pytest.approx(25.0)


def test_a_network_that_stays_down_is_waited_for_once() -> None:
    slept: list[float] = []
    patience = NetworkRetries((5.0, 20.0), sleep=slept.append)
    for _ in range(3):
        with pytest.raises(NetworkTrouble, match="down"):
            patience.through(failing(9), say=quiet)
    assert sum(slept) == pytest.approx(25.0)
    assert patience.through(failing(0), say=quiet) == "image"
    assert patience.through(failing(1), say=quiet) == "image"
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
