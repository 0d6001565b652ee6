"""Lists what differs between two sides: distributions, libraries, variables, and everything else (the base)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from harness.model.answers.narrowed import Component
from harness.narrow.inventory import Inventory
from harness.reasons import NarrowName, NarrowReason

BASE = NarrowName.BASE()
MOST_NAMED = 6
OF_THE_BASE = re.compile(
    r"^(ld-linux|ld-musl|lib(c|m|dl|rt|util|pthread|resolv|nss_\w+|python[\d.]*|stdc\+\+|gcc_s)[-.])|lib-dynload/"
)
"""Libraries that belong to the C library or the interpreter: swapping one of them alone proves nothing."""
SONAME = re.compile(r"^(lib.+?)(?:-[\d.]+)?\.so(?:\..*)?$")


def components(a: Inventory, b: Inventory) -> tuple[Component, ...]:
    """Return the components that differ between two sides; those that the scenario maps come first."""
    differing = (*_distributions(a, b), *_libraries(a, b), *_variables(a, b), *_base(a, b))
    return tuple(sorted(differing, key=lambda component: (not component.mapped, component.kind, component.name)))


def changed_copy(own: Inventory, copy: Inventory) -> str:
    """Return in what a version and its copy, which was made from the version's own parts, differ."""
    names = [each.name for each in components(own, copy)]
    if not names:
        return NarrowReason.COPY_EQUAL()
    left = len(names) - MOST_NAMED
    more = f" and {left} more" if left > 0 else ""
    return NarrowReason.COPY_DIFFERS(names=f"{', '.join(names[:MOST_NAMED])}{more}")


def _distributions(a: Inventory, b: Inventory) -> Iterator[Component]:
    mapped = a.mapped_distributions | b.mapped_distributions
    for name in sorted(a.distributions.keys() | b.distributions.keys()):
        old, new = a.distributions.get(name), b.distributions.get(name)
        if old is None or new is None or old.content != new.content:
            yield Component(
                kind="distribution",
                name=name,
                old=old.version if old else None,
                new=new.version if new else None,
                old_hash=old.content if old else "",
                new_hash=new.content if new else "",
                mapped=name in mapped,
            )


def _libraries(a: Inventory, b: Inventory) -> Iterator[Component]:
    """Yield the libraries outside distributions that both sides map, with different content."""
    old, new = libraries(a), libraries(b)
    for name in sorted(old.keys() & new.keys()):
        if a.mapped[old[name]] != b.mapped[new[name]]:
            yield Component(
                kind="library",
                name=name,
                old=_file_name(old[name]),
                new=_file_name(new[name]),
                old_hash=a.mapped[old[name]],
                new_hash=b.mapped[new[name]],
                mapped=True,
            )


def libraries(side: Inventory) -> Mapping[str, str]:
    """Return the path of each library that can be swapped on its own, by its name without the version."""
    paths: dict[str, str] = {}
    for path in sorted(side.mapped):
        match = SONAME.match(_file_name(path))
        if match and not OF_THE_BASE.search(_file_name(path)) and side.owner(path) is None:
            paths.setdefault(f"{match[1]}.so", path)
    return paths


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _variables(a: Inventory, b: Inventory) -> Iterator[Component]:
    for name in sorted(a.variables.keys() | b.variables.keys()):
        old, new = a.variables.get(name), b.variables.get(name)
        if old != new:
            yield Component(kind="variable", name=name, old=old, new=new)


def _base(a: Inventory, b: Inventory) -> Iterator[Component]:
    old, new = (f"{side.implementation} {side.python}, {side.libc}" for side in (a, b))
    if old != new:
        yield Component(kind="files", name=BASE, old=old, new=new)
