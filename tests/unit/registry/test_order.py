"""Which tags a range selects, and in which order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.registry.image_references import in_range, is_bound, parse

NGC = [
    "20.12-tf1-py3", "21.02-tf1-py3", "21.02-tf2-py3", "22.12-tf1-py3", "23.03-tf1-py3", "23.03.1-tf1-py3",
    "23.04-tf2-py3", "latest", "9.99-tf1-py3",
]  # fmt: skip


def test_tags_are_sorted_by_their_version_not_by_their_letters() -> None:
    shuffled = random.Random(1).sample(NGC, len(NGC))
    assert in_range(shuffled, match="*-tf1-py3") == [
        "9.99-tf1-py3", "20.12-tf1-py3", "21.02-tf1-py3", "22.12-tf1-py3", "23.03-tf1-py3", "23.03.1-tf1-py3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("20.12", "21.02", ["20.12", "21.02"]),
        ("21", "22", ["21.02", "22.12"]),
        ("23.03.1", None, ["23.03.1"]),
        (None, "20.11", ["9.99"]),
        ("30", None, []),
    ],
)
def test_both_bounds_belong_to_the_range(first: str | None, last: str | None, expected: list[str]) -> None:
    found = in_range(NGC, match="*-tf1-py3", first=first, last=last)
    assert [tag.removesuffix("-tf1-py3") for tag in found] == expected


def test_an_upper_bound_takes_what_begins_with_it() -> None:
    assert in_range(NGC, match="*-tf1-py3", first="23", last="23.03") == ["23.03-tf1-py3", "23.03.1-tf1-py3"]


def test_the_version_begins_at_the_first_wildcard() -> None:
    tags = ["tf1-20.12", "tf1-9.1", "tf1-latest", "tf2-1.0"]
    assert in_range(tags, match="tf1-*") == ["tf1-9.1", "tf1-20.12"]


def test_candidates_come_before_their_release_and_words_do_not_count() -> None:
    tags = ["2.0", "2.0rc1", "2.0-rc2", "v2.1", "2.0-slim", "main", "4f2a9c1", "10"]
    assert in_range(tags, match="*") == ["2.0rc1", "2.0-rc2", "2.0", "2.0-slim", "v2.1", "10"]
    assert in_range(tags, match="*", first="2.0rc2", last="2.0") == ["2.0-rc2", "2.0", "2.0-slim"]


@pytest.mark.parametrize(
    ("text", "good"), [("20.12", True), ("9" * 5000, False), ("v2.1.0rc1", True), ("20.12-tf1", False), ("new", False)]
)
def test_bounds_are_versions(text: str, good: bool) -> None:
    assert is_bound(text) is good


@given(st.lists(st.text(max_size=20)), st.text(max_size=10))
def test_no_tag_and_no_pattern_is_too_strange(tags: list[str], match: str) -> None:
    found = in_range(tags, match=match)
    assert set(found) <= set(tags)
    assert in_range(found, match=match) == found


@given(st.permutations(NGC))
def test_the_order_in_which_a_registry_lists_them_does_not_matter(tags: list[str]) -> None:
    assert in_range(tags, match="*", first="20") == in_range(NGC, match="*", first="20")


# ---------------------------------------------------------------- references are parsed as Docker parses them


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
