"""What can be swapped alone: a wrong answer wastes launches on mixtures that no installer makes, or hides a culprit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import Install
from harness.narrow.coupling import Coupling, asked_extras, couple
from harness.narrow.inventory import BASE, Inventory, components
from tests.players.narrowing import Told, coupled, inventory


def ids(coupling: Coupling) -> list[str]:
    return [group.id for group in coupling.groups]


def is_refused(coupling: Coupling, *names: str) -> bool:
    """Return whether an installer refuses these distributions from B, with all others from A."""
    return any(first in names and second not in names for first, second in coupling.needs)


def test_packages_that_pin_each_other_are_swapped_together() -> None:
    a = inventory({"pydantic": ("2.10", ("core==2.27",)), "core": ("2.27", ())})
    b = inventory({"pydantic": ("2.11", ("core==2.33",)), "core": ("2.33", ())})
    (group,) = coupled(a, b).groups
    assert {each.name for each in group.components} == {"pydantic", "core"}
    assert group.together == "pydantic 2.10 requires core==2.27, and core is 2.33"


def test_a_package_that_only_needs_a_newer_one_stays_a_group_of_its_own() -> None:
    a = inventory({"app": ("1", ("lib>=1",)), "lib": ("1", ())})
    b = inventory({"app": ("2", ("lib>=2",)), "lib": ("2", ())})
    coupling = coupled(a, b)
    assert ids(coupling) == ["lib", "app"], "the one that is needed comes first"
    assert coupling.pairs == {("app", "lib")}


def test_what_an_environment_breaks_already_is_not_held_against_its_hybrids() -> None:
    a = inventory({"app": ("1", ("lib>=9",)), "lib": ("1", ())})
    b = inventory({"app": ("2", ("lib>=9",)), "lib": ("2", ())})
    assert ids(coupled(a, b)) == ["app", "lib"]
    assert not coupled(a, b).pairs


def test_a_package_that_one_side_lacks_is_needed_by_what_requires_it() -> None:
    a = inventory({"app": ("1", ())})
    b = inventory({"app": ("2", ("lib",)), "lib": ("2", ())})
    assert coupled(a, b).pairs == {("app", "lib")}


def test_requirements_for_other_systems_and_unasked_extras_couple_nothing() -> None:
    a = inventory({"app": ("1", ('lib==1; sys_platform == "win32"', 'lib==1; extra == "all"')), "lib": ("1", ())})
    b = inventory({"app": ("2", ('lib==2; sys_platform == "win32"', 'lib==2; extra == "all"')), "lib": ("2", ())})
    assert len(ids(coupled(a, b))) == 2


def test_an_extra_that_was_asked_for_couples() -> None:
    a = inventory({"app": ("1", ('lib==1; extra == "all"',)), "lib": ("1", ())})
    b = inventory({"app": ("2", ('lib==2; extra == "all"',)), "lib": ("2", ())})
    extras = asked_extras(Install(base="", python=None, packages=("app[all]==1", "-r nonsense")))
    assert len(couple(components(a, b), a=a, b=b, extras=extras).groups) == 1


def test_packages_that_overwrite_each_other_s_files_are_swapped_together() -> None:
    told: Told = {"one": ("1", ()), "two": ("1", ())}
    a = inventory(told, files={"one": {"cv2/a.so": "x"}, "two": {"cv2/b.so": "x"}})
    b = inventory(told, files={"one": {"cv2/a.so": "y"}, "two": {"cv2/a.so": "z"}})
    (group,) = coupled(a, b).groups
    assert group.together == "two and one both have cv2/a.so"


def test_a_variable_with_the_name_of_a_package_is_another_component() -> None:
    a = inventory({"app": ("1", ())}, variables={"app": "x"})
    b = inventory({"app": ("2", ())}, variables={"app": "y"})
    assert ids(coupled(a, b)) == ["distribution app", "variable app"]


def test_an_empty_file_that_many_packages_have_couples_none() -> None:
    told: Told = {"one": ("1", ()), "two": ("1", ())}
    files = [{name: {"nvidia/__init__.py": "", name: side} for name in told} for side in "xy"]
    a, b = (inventory(told, files=each) for each in files)
    assert len(coupled(a, b).groups) == 2


def test_what_the_scenario_maps_comes_first_and_brings_what_it_needs() -> None:
    b = inventory({"aa": ("2", ()), "lib": ("2", ()), "zz": ("2", ("lib>=2",))})
    files = {"aa": {"aa": "1"}, "lib": {"lib": "1"}, "zz": {"zz/x.so": "1"}}
    a = inventory({"aa": ("1", ()), "lib": ("1", ()), "zz": ("1", ())}, files=files, mapped={"/site/zz/x.so": "1"})
    assert ids(coupled(a, b)) == ["lib", "zz", "aa"]


def test_another_python_is_one_with_the_base_and_cannot_be_swapped() -> None:
    a, b = inventory({}, python="3.11.7"), inventory({}, python="3.12.1")
    (group,) = coupled(a, b).groups
    assert (group.id, group.swaps) == (BASE, frozenset())


def test_no_hybrid_puts_packages_under_a_python_of_another_minor_version() -> None:
    told: Told = {"one": ("1", ()), "two": ("1", ())}
    newer: Told = {"one": ("2", ()), "two": ("2", ())}
    a, b = inventory(told, python="3.11.7"), inventory(newer, python="3.12.1", variables={"LEVEL": "2"})
    base, variable = coupled(a, b).groups
    assert (base.id, base.swaps) == (f"{BASE}, with 2 distributions", frozenset())
    assert {each.name for each in base.components} == {BASE, "one", "two"}
    assert (variable.id, variable.swaps) == ("LEVEL", {"A", "B"}), "what can be swapped still is"
    patch = inventory(newer, python="3.11.9")
    assert [bool(each.swaps) for each in coupled(a, patch).groups if each.id != BASE] == [True, True]


def test_no_hybrid_puts_packages_on_another_kind_of_c_library() -> None:
    a, b = inventory({"one": ("1", ())}, libc="glibc 2.36"), inventory({"one": ("2", ())}, libc="musl 1.2")
    assert ids(coupled(a, b)) == [f"{BASE}, with 1 distribution"]


@pytest.mark.parametrize(("in_b", "base"), [("glibc 2.41", "B"), ("glibc 2.9", "A")])
def test_compiled_code_goes_to_the_newer_c_library_only(in_b: str, base: str) -> None:
    files = {"fast": {"fast/_core.cpython-311.so": "x"}}
    a = inventory({"fast": ("1", ()), "plain": ("1", ())}, files=files, libc="glibc 2.36")
    b = inventory({"fast": ("2", ()), "plain": ("2", ())}, files=files, libc=in_b)
    swaps = {group.id: group.swaps for group in coupled(a, b).groups}
    assert (swaps["fast"], swaps["plain"], swaps[BASE]) == ({base}, {"A", "B"}, frozenset())


@pytest.mark.parametrize(("new", "base"), [("9.10.1", "A"), ("9.1.0", "B")])
def test_a_newer_cudnn_goes_into_the_older_version_only(new: str, base: str) -> None:
    a = inventory({}, mapped={"/cuda/libcudnn.so.9.2.0": "a", "/cuda/libcudnn_ops.so.9.2.0": "a"})
    b = inventory({}, mapped={f"/cuda/libcudnn.so.{new}": "b", f"/cuda/libcudnn_ops.so.{new}": "b"})
    (group,) = coupled(a, b).groups
    assert group.swaps == {base}


def test_libraries_are_told_by_content_and_variables_by_value() -> None:
    a, b = (
        inventory(
            {},
            mapped={f"/usr/lib/libx.so.1.{n}": str(n), "/usr/lib/libc.so.6": str(n)},
            variables={"LEVEL": str(n), "X": "0"},
        )
        for n in range(2)
    )
    assert [(each.kind, each.name) for each in components(a, b)] == [("library", "libx.so"), ("variable", "LEVEL")]


def test_the_parts_of_cudnn_are_swapped_together() -> None:
    names = ("libcudnn.so.9", "libcudnn_ops.so.9", "libcufft.so.11")
    a, b = (inventory({}, mapped={f"/cuda/{name}": side for name in names}) for side in "ab")
    assert ids(coupled(a, b)) == ["libcudnn.so + libcudnn_ops.so", "libcufft.so"]


Needs = tuple[int, set[tuple[int, int, str]]]
"""The number of packages, and which package requires which other, in the same version (==) or a newer one (>=)."""
NEEDS = st.integers(2, 7).flatmap(
    lambda n: st.tuples(
        st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.sampled_from(("==", ">="))))
    )
)


def both_versions(told: Needs) -> list[Inventory]:
    count, pairs = told

    def needs(n: int, version: str) -> tuple[str, ...]:
        return tuple(f"p{to}{how}{version}" for of, to, how in sorted(pairs) if of == n and to != n)

    return [inventory({f"p{n}": (version, needs(n, version)) for n in range(count)}) for version in ("1", "2")]


@given(NEEDS)
def test_every_mixture_inside_a_group_is_one_that_an_installer_refuses(told: Needs) -> None:
    """This is why a group is never split: no part of it can be swapped without the rest."""
    a, b = both_versions(told)
    every = components(a, b)
    coupling = coupled(a, b)
    names = [each.name for each in every]
    for group in coupling.groups:
        members = {each.name for each in group.components}
        for mask in range(2 ** len(names)):
            taken = frozenset(name for place, name in enumerate(names) if mask >> place & 1)
            if taken & members and not members <= taken:
                assert is_refused(coupling, *taken)


@given(NEEDS)
def test_going_from_the_front_never_meets_a_refusal(told: Needs) -> None:
    """A search that takes groups from the front makes only what an installer makes."""
    count, _ = told
    coupling = coupled(*both_versions(told))
    for taken in range(len(coupling.groups) + 1):
        assert not any(x in ids(coupling)[:taken] and y not in ids(coupling)[:taken] for x, y in coupling.pairs)
    assert sorted(each.name for group in coupling.groups for each in group.components) == [
        f"p{n}" for n in range(count)
    ]
