"""What `harness narrow` prints: the groups in which two versions differ, and what a search among them costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.model.narrowed import Component, ComponentGroup, Culprit, CulpritKind, Narrowed, ProofCell
from harness.report.text.clean import plain
from harness.report.text.narrowed import value_text

LEADS: Mapping[CulpritKind, str] = {
    "culprit": "culprit",
    "together": "culprits, only together",
    "needed": "needed for it, and not shown to be enough alone",
    "enough": "enough for it, and not shown to be all of it",
    "switch": "it switches between good and bad with",
}


def begun(groups: Sequence[ComponentGroup], *, hybrids: int, launches: int) -> str:
    """The line before the search begins, with what one culprit is expected to take."""
    return f"{_counted(groups)}: one culprit among them takes about {hybrids} hybrids, {launches} launches"


def differing(groups: Sequence[ComponentGroup], *, hybrids: int, launches: int) -> str:
    """The table of a dry run."""
    rows = [row for group in groups for row in _rows(group)]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {what}" for name, what in rows]
    return "\n".join([begun(groups, hybrids=hybrids, launches=launches), *lines, ""])


def result(found: Narrowed) -> str:
    """The answer, with its proof."""
    lines = [_head(found), *(line for culprit in found.culprits for line in _culprit(culprit, found))]
    lines += [_proof(cell) for cell in found.shams]
    if found.open and found.verdict != "found":
        lines.append(f"  not cleared: {plain(', '.join(found.open))}")
    lines.append(f"{len(found.hybrids)} hybrids, {found.launches} launches with those of A and B")
    return "\n".join([*lines, ""])


def _head(found: Narrowed) -> str:
    sides = f"A is {plain(found.good)}, B is {plain(found.bad)}"
    reason = f": {plain(found.reason)}" if found.reason else ""
    told = {
        "found": f"{sides}",
        "method": f"{sides}: not found, because putting a version's own parts in again changes it{reason}",
        "not reproduced": f"{sides}: not found, because the finding does not come back{reason}",
        "undecided": f"{sides}: undecided{reason}",
        "interrupted": f"{sides}: interrupted{reason}",
    }
    return told[found.verdict]


def _culprit(culprit: Culprit, found: Narrowed) -> Iterator[str]:
    yield f"{LEADS[culprit.kind]}: {' and '.join(_part(part, found) for part in culprit.parts)}"
    if culprit.part_of_it and culprit.share is not None:
        yield f"  part of it: {culprit.share:.0%} of the effect"
    if culprit.partners:
        yield f"  its partner is among: {plain(', '.join(culprit.partners))}"
    yield from map(_proof, culprit.proof)


def _part(part: Sequence[str], found: Narrowed) -> str:
    told = [", ".join(f"{plain(each.name)} {_change(each)}" for each in found.by_id[one].components) for one in part]
    return told[0] if len(told) == 1 else f"one of [{'; '.join(told)}]"


def _proof(cell: ProofCell) -> str:
    named = plain(", ".join(cell.groups))
    what = {
        "A + c": f"A with {named} from B",
        "B - c": f"B with {named} from A",
        "sham A": f"A with its own {named} put in again",
        "sham B": f"B with its own {named} put in again",
    }[cell.role]
    told = cell.result
    share = "" if told.share is None else f", {told.share:.0%} of the effect"
    reason = f"{share}: {plain(told.reason)}" if told.reason else share
    beside = f" (and {plain(', '.join(cell.beside))})" if cell.beside else ""
    return f"  {told.state:<10} {what}{beside}, {told.launches} launches{reason}"


def _counted(groups: Sequence[ComponentGroup]) -> str:
    components = sum(len(group.components) for group in groups)
    same = "" if components == len(groups) else f" ({components} components)"
    return f"they differ in {len(groups)} group{'s' if len(groups) != 1 else ''}{same}"


def _rows(group: ComponentGroup) -> Iterator[tuple[str, str]]:
    if len(group.components) == 1:
        yield plain(group.id), _change(group.components[0])
        return
    yield plain(group.id), plain(f"together: {group.together}")
    for each in group.components:
        yield f"  {plain(each.name)}", _change(each)


def _change(each: Component) -> str:
    mapped = ", mapped" if each.mapped else ""
    kind = "" if each.kind == "distribution" else f"{each.kind} "
    if each.old == each.new:
        return plain(f"{kind}{value_text(each, each.old, absent='none')}, with other content{mapped}")
    old, new = (value_text(each, value, absent="none") for value in (each.old, each.new))
    return plain(f"{kind}{old} → {new}{mapped}")
