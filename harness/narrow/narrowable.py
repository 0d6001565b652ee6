"""Checks that a finding, or what differs between two versions, can be narrowed. Otherwise, one line says why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from harness.errors import UsageError
from harness.model import Cell, Finding
from harness.model.answers.narrowed import Side
from harness.narrow.coupling import Coupling, asked_extras, couple
from harness.narrow.differing_components import components
from harness.narrow.inventory import Inventory


def check_finding(finding: Finding) -> None:
    """Raise UsageError unless the finding is a change to the worse, with a good version, on a host that can narrow."""
    place = f"{finding.series} {finding.after}"
    if finding.kind == "first_fixed":
        raise UsageError(f"{place}: is where a fault was fixed; give narrow a finding at which something became worse")
    if finding.lane.host.engine == "slurm":
        raise UsageError(f"{place}: narrow makes no hybrids on Slurm hosts yet; run it on a node with --good and --bad")
    if finding.before is None:
        raise UsageError(f"{place}: is bad from the start, so there is no good version to make hybrids with")


def finding_between(findings: Sequence[Finding], good: str, bad: str) -> tuple[int, Finding]:
    """Return the first finding that `bad` is worse than `good`, if possible not a consequence, and its number in the
    order of reports. Raises UsageError if there is none.
    """
    worse = [
        (number, one)
        for number, one in enumerate(findings, start=1)
        if one.kind != "first_fixed" and (one.before, one.after) == (good, bad)
    ]
    pair, kinds = f"{good} and {bad}", {one.kind for one in findings if one.kind != "first_fixed" or one.after == bad}
    if not worse and "first_fixed" in kinds:  # what `bad` fixes is bad in `good` from the start, so this comes first
        raise UsageError(f"{pair}: the good one is worse than the bad one; are they swapped?")
    if not worse and "bad_from_start" in kinds:
        raise UsageError(f"{pair}: both are bad; give a good one with --good")
    if not worse:
        raise UsageError(
            f"{pair}: nothing that was measured is worse in the bad one; does the scenario show the fault?"
        )
    return min(worse, key=lambda one: (bool(one[1].consequence_of), one[0]))


def coupled(cells: Mapping[Side, Cell], contents: Mapping[Side, Inventory], *, ran: bool = True) -> Coupling:
    """Return the groups in which two versions differ. Raises UsageError if they do not. `ran`: the scenario ran, so the
    libraries that it maps are known.
    """
    a, b = (cells[side].image for side in ("A", "B"))
    differing = components(contents["A"], contents["B"])
    if not differing and not ran:
        raise UsageError(
            f"{a.version} and {b.version}: no distribution or variable differs; narrow without --dry-run compares "
            "mapped libraries"
        )
    if not differing:
        refuse_equal(cells)
    return couple(differing, a=contents["A"], b=contents["B"], extras=asked_extras(a.source, b.source))


def refuse_equal(cells: Mapping[Side, Cell]) -> NoReturn:
    a, b = (cells[side].image.version for side in ("A", "B"))
    raise UsageError(
        f"{a} and {b}: no distribution, mapped library or variable differs between them, so there is nothing to swap; "
        "other files are not compared"
    )


def check_swappable(
    coupling: Coupling, cells: Mapping[Side, Cell], contents: Mapping[Side, Inventory], *, ran: bool = True
) -> None:
    """Raise UsageError if no group can be swapped. `ran`: as for `coupled`."""
    if any(group.swaps for group in coupling.groups):
        return
    names = (f"{cell.image.version} ({' '.join(contents[side].installs_for)})" for side, cell in cells.items())
    raise UsageError(
        f"{' and '.join(names)}: everything that differs belongs to the operating system, Python or the C library, "
        "which cannot be swapped; narrow versions with the same minor version of Python"
        f"{'' if ran else '; without --dry-run, narrow compares mapped libraries'}"
    )


def refuse_bad(cells: Mapping[Side, Cell], problem: str, *, b_fails: bool) -> NoReturn:
    """Raise the error that A, which should be good, fails."""
    a, b = (cells[side].image.version for side in ("A", "B"))
    if b_fails:
        raise UsageError(f"{a}: should be good, but fails ({problem}); so does the bad one: is the scenario at fault?")
    raise UsageError(f"{a}: should be good, but fails ({problem}); and {b} does not: are they swapped?")
