"""Hybrids of two images: a hybrid with the wrong parts accuses the wrong package."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.errors import InfrastructureError
from harness.model import LIBRARIES, Graft, Install
from harness.narrow.hybrids import grafted_hybrid, installed_hybrid, not_loaded
from harness.narrow.inventory import read_inventory
from harness.narrow.records import Hybrid
from tests.players.narrowing import A, B, image, inventory, sides


def everything() -> frozenset[str]:
    return frozenset(group.id for group in sides().groups)


def source_of(hybrid: Hybrid) -> Graft:
    source = grafted_hybrid(sides(), hybrid).source
    assert isinstance(source, Graft)
    return source


def test_an_environment_holds_each_package_of_the_side_that_was_asked_for() -> None:
    made = installed_hybrid(sides(), Hybrid(base="A", from_b=frozenset({"one"})))
    assert made.source == Install(base="base", python="3.11", packages=("one==2", "same==5", "two==1"), exact=True)
    assert dict(made.environment) == {"LEVEL": "1", "LD_LIBRARY_PATH": "/cuda"}
    assert made.version == "1 with one"


def test_a_package_that_only_one_side_has_comes_and_goes_with_that_side() -> None:
    with_it = installed_hybrid(sides(), Hybrid(base="A", from_b=frozenset({"new"}))).source
    without = installed_hybrid(sides(), Hybrid(base="B", from_b=everything() - {"new"})).source
    assert isinstance(with_it, Install)
    assert isinstance(without, Install)
    assert "new==1" in with_it.packages
    assert "new==1" not in without.packages


def test_a_variable_is_swapped_alone() -> None:
    made = installed_hybrid(sides(), Hybrid(base="A", from_b=frozenset({"LEVEL"})))
    assert dict(made.environment)["LEVEL"] == "2"
    assert isinstance(made.source, Install)
    assert "one==1" in made.source.packages


def test_both_ends_are_the_versions_themselves() -> None:
    assert installed_hybrid(sides(), Hybrid(base="A")) == grafted_hybrid(sides(), Hybrid(base="A")) == image("1")
    assert installed_hybrid(sides(), Hybrid(base="B", from_b=everything())) == image("2")


def test_a_sham_swap_is_made_by_the_same_method_from_its_own_side() -> None:
    made = installed_hybrid(sides(), Hybrid(base="A", sham=frozenset({"one"})))
    assert isinstance(made.source, Install)
    assert made.source.exact
    assert made.source.packages == ("one==1", "same==5", "two==1")
    graft = source_of(Hybrid(base="B", from_b=everything(), sham=frozenset({"one"})))
    assert graft.reference == graft.other == "sha256:b"
    assert graft.copy == (("/site/one/__init__.py",) * 2, ("/site/one-2.dist-info",) * 2)


def test_a_graft_takes_the_old_files_out_and_puts_the_new_ones_in() -> None:
    graft = source_of(Hybrid(base="A", from_b=frozenset({"one"})))
    assert (graft.reference, graft.other) == ("sha256:a", "sha256:b")
    assert graft.remove == ("/site/one/__init__.py", "/site/one-1.dist-info")
    assert graft.copy == (("/site/one/__init__.py",) * 2, ("/site/one-2.dist-info",) * 2)
    assert dict(graft.environment) == {"LEVEL": "1", "LD_LIBRARY_PATH": "/cuda"}


def test_a_library_takes_the_place_of_the_one_that_is_mapped() -> None:
    """This holds however it is found: by the loader's path, by the program's own path, or by its full name."""
    graft = source_of(Hybrid(base="B", from_b=everything() - {"libx.so"}))
    assert (graft.reference, graft.other) == ("sha256:b", "sha256:a")
    assert graft.copy == (("/cuda/libx.so.1.0", "/cuda/libx.so.1.1"),)
    assert (graft.libraries, dict(graft.environment)["LD_LIBRARY_PATH"]) == ((), "/cuda")


def test_a_library_with_another_interface_comes_first_on_the_loader_s_path() -> None:
    b = replace(B, mapped={"/cuda/libx.so.2.0": "new"})
    graft = grafted_hybrid(sides(A, b), Hybrid(base="B", from_b=everything() - {"libx.so"})).source
    assert isinstance(graft, Graft)
    assert (graft.copy, graft.libraries) == ((), ("/cuda/libx.so.1.0",))
    assert dict(graft.environment)["LD_LIBRARY_PATH"] == f"{LIBRARIES}:/cuda"


def test_a_hybrid_that_loaded_another_library_than_asked_for_is_not_believed() -> None:
    hybrid = Hybrid(base="A", from_b=frozenset({"libx.so"}))
    assert not not_loaded(sides(), hybrid, B)
    assert not_loaded(sides(), hybrid, A) == "libx.so of 2 was requested, but /cuda/libx.so.1.0 was mapped"


def test_a_package_goes_where_the_base_has_its_packages() -> None:
    moved = {name: replace(each, place="/usr/lib/python3/dist-packages") for name, each in B.distributions.items()}
    b = replace(B, distributions=moved)
    graft = grafted_hybrid(sides(A, b), Hybrid(base="A", from_b=frozenset({"new"}))).source
    assert isinstance(graft, Graft)
    assert graft.copy[0] == ("/usr/lib/python3/dist-packages/new/__init__.py", "/site/new/__init__.py")


def test_hybrids_of_many_groups_have_names_of_their_own() -> None:
    a, b = (inventory({f"p{n}": (version, ()) for n in range(12)}) for version in "12")
    made = sides(a, b)
    halves = [frozenset(f"p{n}" for n in range(start, start + 6)) for start in (0, 6)]
    names = {made.label(Hybrid(base="A", from_b=half)) for half in halves}
    assert len(names) == 2
    assert all(name.startswith("1 with 6 of 12 groups (") for name in names)


def test_a_version_with_its_own_put_in_again_is_told_from_one_with_another_s() -> None:
    made = sides()
    assert made.label(Hybrid(base="A", sham=frozenset({"one"}))) == "1 with its own one put in again"
    assert made.label(Hybrid(base="B", from_b=everything() - {"one"})) == "2 without one"


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 1, "python": 3}'])
def test_an_image_that_sends_nonsense_is_a_line_and_no_traceback(text: str) -> None:
    with pytest.raises(InfrastructureError, match=r"components\.json: .*the image sent no component list"):
        read_inventory(text, variables={})
