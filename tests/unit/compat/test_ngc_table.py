"""The shipped table has the published values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from harness.compat.image_requirements import numbers, shipped
from tests.unit.compat.cards import described

# release, TensorFlow, Python, CUDA, lowest driver, from NGC's release notes; `~`: from a neighbouring release.
PUBLISHED = """
20.06 1.15.2 3.6 11.0 450 ~
20.07 1.15.3 3.6 11.0 450 ~
20.08 1.15.3 3.6 11.0 450 ~
20.09 1.15.3 3.6 11.0 450 ~
20.10 1.15.4 3.6 11.1.0 455
20.11 1.15.4 3.6 11.1 455 ~
20.12 1.15.4 3.8 11.1.1 455
21.02 1.15.5 3.8 11.2 460 ~
21.03 1.15.5 3.8 11.2 460 ~
21.04 1.15.5 3.8 11.3.0 465.19
21.05 1.15.5 3.8 11.3.0 465.19
21.06 1.15.5 3.8 11.3.1 465.19
21.07 1.15.5 3.8 11.4 470 ~
21.08 1.15.5 3.8 11.4 470 ~
21.09 1.15.5 3.8 11.4 470 ~
21.10 1.15.5 3.8 11.4.2 470
21.11 1.15.5 3.8 11.5.0 495
21.12 1.15.5 3.8 11.5-11.6 495 ~
22.01 1.15.5 3.8 11.5-11.6 495 ~
22.02 1.15.5 3.8 11.5-11.6 495 ~
22.03 1.15.5 3.8 11.5-11.6 495 ~
22.04 1.15.5 3.8 11.6 510 ~
22.05 1.15.5 3.8 11.6 510 ~
22.06 1.15.5 3.8 11.7 515
22.07 1.15.5 3.8 11.7 515 ~
22.08 1.15.5 3.8 11.7 515 ~
22.09 1.15.5 3.8 11.7 515 ~
22.10 1.15.5 3.8 11.8.0 520
22.11 1.15.5 3.8 11.8.0 520
22.12 1.15.5 3.8 11.8.0 520
23.01 1.15.5 3.8 12.0.1 525
23.02 1.15.5 3.8 12.0.1 525
23.03 1.15.5 3.8 12.1.0 530
"""
ROWS = [line.split() for line in PUBLISHED.strip().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_release_is_as_published(row: list[str]) -> None:
    release, tensorflow, python, cuda, driver, *guessed = row
    found = shipped().named(f"nvcr.io/nvidia/tensorflow:{release}-tf1-py3")

    assert found is not None
    assert found is shipped().named(f"{tensorflow}+nv{release}")
    span = f"{found.cuda}-{found.cuda_newest}" if found.cuda_newest else found.cuda
    assert (found.tensorflow, found.python, span, found.driver) == (tensorflow, python, cuda, driver)
    assert found.confirmed is not bool(guessed)


def test_no_release_beyond_the_published_ones() -> None:
    assert [name for row in shipped().tensorflow1 for name in row.releases] == [row[0] for row in ROWS]


@pytest.mark.parametrize(
    ("capability", "cuda"),
    [
        ("7.0", "9.0"),
        ("7.5", "10.0"),
        ("8.6", "11.1"),
        ("8.9", "11.8"),
        ("9.0", "11.8"),
        ("10.0", "12.8"),
        ("12.0", "12.8"),
    ],
)
def test_the_oldest_cuda_for_a_card(capability: str, cuda: str) -> None:
    assert shipped().capabilities[capability] == cuda


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("20.12-tf1-py3", "20.12"),
        ("nvcr.io/nvidia/tensorflow:20.12-tf1-py3", "20.12"),
        ("1.15.5+nv21.2", "21.02"),
        ("nvidia-tensorflow==1.15.5+nv22.12", "22.12"),
        ("20.12-tf2-py3", None),
        ("2.10.1+nv22.12", None),
        ("20.12", None),
        ("21.01-tf1-py3", None),
        ("latest", None),
    ],
)
def test_which_names_name_a_release(text: str, release: str | None) -> None:
    found = shipped().named(text)
    assert (None if found is None else release in found.releases) is (None if release is None else True)


def test_what_the_image_says_wins_over_the_table() -> None:
    needs = described(
        reference="nvcr.io/nvidia/tensorflow:20.11-tf1-py3",
        environment={"CUDA_VERSION": "11.2.0.023", "CUDA_DRIVER_VERSION": "460.27.04"},
        labels={"com.nvidia.cuda.version": "9.0"},
    )
    assert (needs.cuda, needs.driver, needs.said_cuda, needs.said_driver) == ("11.2.0.023", "460.27.04", True, True)
    by_label = described(labels={"com.nvidia.cuda.version": "9.0.176"})
    assert (by_label.cuda, by_label.driver, by_label.said_cuda) == ("9.0.176", None, True)
    assert not described(reference="python:3.11", environment={"CUDA_VERSION": "none"}).known


def test_the_release_that_the_image_names_wins_over_its_tag() -> None:
    environment = {"NVIDIA_TENSORFLOW_VERSION": "22.12", "TENSORFLOW_VERSION": "1.15.5"}
    needs = described(reference="mine:20.12-tf1-py3", environment=environment)
    named = shipped().release("22.12")
    assert named is not None
    assert (needs.cuda, needs.driver) == (named.cuda, named.driver)
    second = {"NVIDIA_TENSORFLOW_VERSION": "22.12", "TENSORFLOW_VERSION": "2.10.1"}
    assert described(reference="mine:latest", environment=second).cuda is None


def test_releases_stand_oldest_first_and_once() -> None:
    names = [name for row in shipped().tensorflow1 for name in row.releases]
    assert names == sorted(set(names))


# ---------------------------------------------------------------- versions

PARTS = st.lists(st.integers(0, 999), min_size=1, max_size=4)


@given(PARTS, PARTS)
def test_versions_compare_as_packaging_has_it(first: list[int], second: list[int]) -> None:
    one, other = ".".join(map(str, first)), ".".join(map(str, second))
    mine, theirs = (numbers(one), numbers(other)), (Version(one), Version(other))
    assert mine[0] is not None
    assert mine[1] is not None
    assert (mine[0] < mine[1], mine[0] == mine[1]) == (theirs[0] < theirs[1], theirs[0] == theirs[1])


@given(PARTS, st.sampled_from(["", "-server", " (R470)", "+x", "\n"]))
def test_what_follows_a_version_says_nothing(parts: list[int], suffix: str) -> None:
    text = ".".join(map(str, parts))
    assert numbers(text) == numbers(text + suffix) == numbers(f"R{text}{suffix}")
