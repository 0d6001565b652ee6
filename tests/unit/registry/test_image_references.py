"""Image references are parsed as Docker parses them."""

from __future__ import annotations

import pytest

from harness.registry.image_references import parse

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "host", "repository", "reference"),
    [
        ("ubuntu", "docker.io", "library/ubuntu", "latest"),
        ("team/app:1", "docker.io", "team/app", "1"),
        ("index.docker.io/team/app", "docker.io", "team/app", "latest"),
        ("nvcr.io/nvidia/tensorflow:20.12-tf1-py3", "nvcr.io", "nvidia/tensorflow", "20.12-tf1-py3"),
        ("localhost/x", "localhost", "x", "latest"),
        ("127.0.0.1:5000/a/b:1", "127.0.0.1:5000", "a/b", "1"),
        (f"nvcr.io/x:1@{DIGEST}", "nvcr.io", "x", DIGEST),
    ],
)
def test_parts(text: str, host: str, repository: str, reference: str) -> None:
    name = parse(text)
    assert (name.host, name.repository, name.reference) == (host, repository, reference)


def test_the_hub_is_served_by_another_host() -> None:
    assert parse("ubuntu").server == "registry-1.docker.io"
    assert parse("nvcr.io/x").server == "nvcr.io"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost:5000", True),
        ("127.0.0.9", True),
        ("[::1]:5000", True),
        ("nvcr.io", False),
        ("127.example.org", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert parse(f"{host}/x").is_loopback is loopback
