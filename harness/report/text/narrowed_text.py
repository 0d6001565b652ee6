"""Describes a narrowed finding (the component that causes it, the proof, and what is unknown) for all reports and for
the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from harness import amounts
from harness.masking import is_private
from harness.model import Component, ComponentGroup, Culprit, HybridResult, Narrowed, ProofCell
from harness.reasons import NarrowName
from harness.report.text.harmless_text import plain, shortened

TITLE = "Which component"
_SPECIFIERS = re.compile(r"(?:[A-Za-z0-9][\w.-]*==[0-9][\w.!+]* ?)+", re.ASCII)
MOST_NAMED = 6
SHAM_CHANGED = {"sham A": "bad", "sham B": "good"}
"""The state of a sham swap that shows that swapping itself changes the result."""
MOST_VALUE = 60
"""Most characters of a name, a version or a variable's value."""


def lines(several: Iterable[Narrowed]) -> list[str]:
    """Return the sentences on all narrowings, in the order given."""
    return [line for narrowed in several for line in sentences(narrowed)]


def sentences(narrowed: Narrowed) -> list[str]:
    """Return the sentences on one narrowing: the answer first, then its proof, then what remains unknown."""
    about = f"finding {narrowed.finding}: " if narrowed.finding else ""
    answer, *rest = _answers(narrowed)
    return [f"{about}{answer}", *rest, *proof(narrowed), *_left(narrowed)]


def headline(narrowed: Narrowed) -> str:
    """Return the answer in one sentence."""
    return _answers(narrowed)[0]


def _answers(narrowed: Narrowed) -> list[str]:
    good, bad = plain(narrowed.good), plain(narrowed.bad)
    named = [_culprit(culprit, narrowed) for culprit in narrowed.culprits]
    if narrowed.verdict == "not reproduced":
        again = "use `--fresh` to launch both again"
        return [f"not narrowed: {good} and {bad} do not differ now ({plain(narrowed.reason)}); {again}"]
    if narrowed.verdict == "method":
        return [_method(narrowed)]
    nothing = not named or len(narrowed.culprits[0].groups) == len(narrowed.groups) > 1
    if narrowed.verdict == "undecided" or (narrowed.verdict == "interrupted" and nothing):
        return [f"not narrowed: {narrowed.verdict} ({plain(narrowed.reason)})"]
    if narrowed.verdict == "interrupted":
        return [f"not fully narrowed ({plain(narrowed.reason)}); so far: {named[0]}", *named[1:]]
    return named


def _method(narrowed: Narrowed) -> str:
    """Return that swapping itself changes the result. A single group is named if it does so alone: the last sham swap
    changed its version, and the one just before it, of all the other groups, did not.
    """
    changed = [cell for cell in narrowed.shams if cell.result.state == SHAM_CHANGED[cell.role]]
    is_alone = (
        len(changed) == 2
        and changed[-1] is narrowed.shams[-1]
        and narrowed.shams[-2].result.state not in (SHAM_CHANGED[changed[-1].role], "unresolved")
    )
    cell = changed[-1] if is_alone else changed[0]
    where = f"; {plain(narrowed.reason)}" if narrowed.reason else ""
    return (
        f"not narrowed: {cell_title(cell, narrowed)} is {cell.result.state}, so swapping itself changes the result, "
        f"and no hybrid proves anything{where}"
    )


def _culprit(culprit: Culprit, narrowed: Narrowed) -> str:
    good, bad = plain(narrowed.good), plain(narrowed.bad)
    what = " and ".join(_part(part, narrowed) for part in culprit.parts)
    said = {
        "culprit": f"culprit: {what}; {good} with it is bad, {bad} without it is good",
        "together": f"culprits together: {what}; {good} with all of them is bad, {bad} without any one of them is good",
        "needed": f"necessary: {what}; {bad} without it is good; whether it is sufficient is not known",
        "enough": f"sufficient: {what}; {good} with it is bad, {_another(culprit, bad)}",
        "switch": f"involved: {what}; of two hybrids that differ only in it, one is good and one is bad",
    }[culprit.kind]
    partners = ""
    if culprit.partners:
        partners = f"; if it needs a partner, that is among {named_groups(culprit.partners, narrowed)}"
    return f"{said}{_share(culprit)}{_inside(culprit, narrowed)}{partners}"


def _inside(culprit: Culprit, narrowed: Narrowed) -> str:
    """Return why the components of a group cannot be separated, and which of them the scenario maps into memory."""
    alone = [part[0] for part in culprit.parts if len(part) == 1]
    groups = [narrowed.by_id[group] for group in alone if group in narrowed.by_id]
    return "".join(_not_apart(group) for group in groups if len(group.components) > 1)


def _not_apart(group: ComponentGroup) -> str:
    mapped = [plain(component.name) for component in group.components if component.mapped]
    seen = f"; of these {len(group.components)} the scenario maps {', '.join(mapped[:MOST_NAMED])}" if mapped else ""
    return f"; its components cannot be separated, because {plain(group.together)}{seen}"


def _another(culprit: Culprit, bad: str) -> str:
    states = {cell.result.state for cell in culprit.proof if cell.role == "B - c"}
    if "bad" in states:
        return f"and {bad} without it is still bad: there is another cause"
    if states == {"good"}:
        return f"and {bad} without it and the causes named before is good"
    return f"and it is not known whether {bad} has another cause"


def _share(culprit: Culprit) -> str:
    if not culprit.part_of_it or culprit.share is None:
        return ""
    interval = "" if culprit.share_ci is None else f" ({_percents(culprit.share_ci)})"
    return f"; it accounts for {amounts.number(100 * culprit.share)} % of the effect{interval}"


def _percents(interval: tuple[float, float]) -> str:
    return amounts.between((100 * interval[0], 100 * interval[1]))


def _part(part: tuple[str, ...], narrowed: Narrowed) -> str:
    if len(part) == 1:
        return group_text(part[0], narrowed)
    return f"one of {named_groups(part, narrowed)} (no hybrid separates them)"


def named_groups(groups: Iterable[str], narrowed: Narrowed) -> str:
    """Return groups by name: the first MOST_NAMED of them, and the number of the rest."""
    return _few([group_text(group, narrowed) for group in groups])


def _few(texts: Sequence[str]) -> str:
    more = len(texts) - MOST_NAMED
    return ", ".join(texts[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def group_text(group: str, narrowed: Narrowed) -> str:
    """Return a group with its versions, `numpy 1.26.4 → 2.0.0`; a group of several components also with its name."""
    known = narrowed.by_id.get(group)
    if known is None or not known.components:
        return plain(group)
    if len(known.components) == 1:
        return component_text(known.components[0])
    return f"{plain(group)} ({_few([component_text(component) for component in known.components])})"


def component_text(component: Component) -> str:
    """Return a component's change: `numpy 1.26.4 → 2.0.0`, `library libcufft.so.10 → libcufft.so.11`.

    A private value of a variable is withheld.
    """
    if component.kind == "library":
        return f"library {component_change(component)}"
    kind = "variable " if component.kind == "variable" else ""
    return f"{kind}{shortened(component.name, most=MOST_VALUE)} {component_change(component)}"


def component_change(component: Component) -> str:
    """Return `1.26.4 → 2.0.0`, or `1.26.4, with different content` if only the content differs."""
    old, new = (side_text(component, value) for value in (component.old, component.new))
    same = component.old == component.new
    return f"{old}, with different content" if same else f"{old} → {new}"


def side_text(component: Component, value: str | None) -> str:
    """Return the version or value of one side, or `absent`; a private value of a variable is withheld."""
    if value is None:
        return "absent"
    if component.kind == "variable" and is_private(component.name, value):
        return "[withheld]"
    return shortened(value, most=MOST_VALUE) or "empty"


# ---------------------------------------------------------------- proof


def proof(narrowed: Narrowed) -> list[str]:
    """Return a line for each version and hybrid of the proof. If only one group differs, the versions are the proof."""
    ends = [(plain(name), end) for name, end in ((narrowed.good, narrowed.a), (narrowed.bad, narrowed.b)) if end]
    cells = [cell for culprit in narrowed.culprits for cell in culprit.proof]
    rows = [*ends, *((cell_title(cell, narrowed), cell.result) for cell in (*cells, *narrowed.shams))]
    if not cells and not narrowed.shams:
        return []
    if len(narrowed.by_id) > 1:
        return [f"{title}: {result_text(result)}" for title, result in rows]
    only = [(cell_title(cell, narrowed), cell.result) for cell in narrowed.shams]
    lines = [f"{title}: {result_text(result)}" for title, result in (*ends, *only)]
    return [*(f"{group_text(group, narrowed)}: no other component differs" for group in narrowed.by_id), *lines]


def cell_title(cell: ProofCell, narrowed: Narrowed) -> str:
    """Return a hybrid's name: `20.12 with cuda-cufft`, `20.12 with its own cuda-cufft put in again`."""
    names = ", ".join(map(plain, cell.groups[:MOST_NAMED])) + (" and more" if len(cell.groups) > MOST_NAMED else "")
    others = f", along with {amounts.count(len(cell.beside), 'other group')}" if cell.beside else ""
    good, bad = plain(narrowed.good), plain(narrowed.bad)
    return {
        "A + c": f"{good} with {names}{others}",
        "B - c": f"{bad} without {names}{others}",
        "sham A": _own(good, cell, narrowed),
        "sham B": _own(bad, cell, narrowed),
    }[cell.role]


def _own(version: str, cell: ProofCell, narrowed: Narrowed) -> str:
    """Return what a sham swap does, in words that do not presuppose the term."""
    if len(cell.groups) == 1 < len(narrowed.groups):
        return NarrowName.PUT_IN_AGAIN(version=version, groups=plain(cell.groups[0]))
    if len(cell.groups) == len(narrowed.groups):
        return NarrowName.REASSEMBLED(version=version)
    return f"{version} with {len(cell.groups)} of its own groups put in again"


def result_text(result: HybridResult) -> str:
    """Return a hybrid's result: `bad in 2 of 2 launches (RSS grows 2.8 KiB/step)`, `good in 3 launches`."""
    if result.share is not None and result.share_ci is not None:
        share = f"{amounts.number(100 * result.share)} % of the effect, {_percents(result.share_ci)}"
        return f"{result.state} in {amounts.count(result.launches, 'launch')} ({share})"
    if result.state == "unresolved":
        return f"could not be decided ({shortened(result.reason or 'no reason known', most=160)})"
    if result.state == "bad" and result.bad:
        shown = f" ({shortened(result.reason, most=160)})" if result.reason else ""
        return f"bad in {result.bad} of {result.launches} launches{shown}"
    return f"{result.state} in {amounts.count(result.launches, 'launch')}"


def _left(narrowed: Narrowed) -> Iterator[str]:
    if narrowed.open:
        yield f"may still be a cause: {named_groups(narrowed.open, narrowed)}"
    refused = [hybrid for hybrid in narrowed.hybrids if hybrid.state == "unresolved"]
    told_of = f"; {amounts.count(len(refused), 'hybrid')} could not be built or gave no result" if refused else ""
    if narrowed.hybrids:
        hybrids = amounts.count(len(narrowed.hybrids), "hybrid")
        yield f"tried {hybrids} of the two versions in {amounts.count(narrowed.launches, 'launch')}{told_of}"


# ---------------------------------------------------------------- a reproduction


def _is_installable(*specifiers: str) -> bool:
    """Return whether these are plain `name==version` specifiers. The image's author chose the names of its components,
    and a reader pastes the command into a shell.
    """
    return all(_SPECIFIERS.fullmatch(specifier) for specifier in specifiers)


def install_lines(narrowed: Narrowed) -> list[str]:
    """Return two `pip install` commands for the good version that differ only in the culprit; [] if there are none."""
    old, new = installs(narrowed) or ("", "")
    return [f"pip install --no-deps {old}  # good", f"pip install --no-deps {new}  # bad"] if old else []


def installs(narrowed: Narrowed) -> tuple[str, str] | None:
    """Return the culprit's requirements in the good version and in the bad version, as arguments of an installer.

    Return None unless every component of the culprit is a distribution with a version on both sides.
    """
    groups = [narrowed.by_id.get(group) for culprit in narrowed.culprits[:1] for group in culprit.groups]
    parts = [component for group in groups if group is not None for component in group.components]
    settled = narrowed.verdict == "found" and narrowed.culprits[0].kind in ("culprit", "together", "enough")
    old = " ".join(f"{component.name}=={component.old}" for component in parts)
    new = " ".join(f"{component.name}=={component.new}" for component in parts)
    if (
        not parts
        or not settled
        or any(component.kind != "distribution" for component in parts)
        or not _is_installable(old, new)
    ):
        return None
    return old, new


def heals(narrowed: Narrowed) -> bool:
    """Return whether the bad version becomes good when it gets the culprit from the good version."""
    return narrowed.verdict == "found" and narrowed.culprits[0].kind in ("culprit", "together")


# ---------------------------------------------------------------- narrow output


NOT_RUN = (
    "The scenario was not run, so it is not known which libraries it maps. The search tries mapped libraries first; "
    "mapped libraries that belong to no distribution will form further groups."
)
SWEPT = "Before the search, both versions are swept to see what is worse."
LEVEL = (
    "If a level such as the step time is worse, each hybrid is launched together with both versions: three launches "
    "instead of one."
)


def begun(groups: Sequence[ComponentGroup], *, hybrids: int, launches: int, most: int) -> str:
    """Return the line printed before the search, with the expected number of hybrids and launches for one culprit."""
    task = "finding one culprit among them" if len(groups) > 1 else "proving that it is the culprit"
    return f"{_counted(groups)}; {task} takes about {hybrids} hybrids and {launches} launches, at most {most:,}"


def differing(
    groups: Sequence[ComponentGroup], *, hybrids: int, launches: int, most: int, sweeps: bool, by_exit_code: bool
) -> str:
    """Return the table of a dry run. `sweeps`: no run has measured the two versions yet; `by_exit_code`: only the exit
    code of the scenario is judged, so no level can be worse.
    """
    rows = [row for group in groups for row in _rows(group)]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {what}" for name, what in rows]
    swept = SWEPT if by_exit_code else f"{SWEPT} {LEVEL}"
    notes = [NOT_RUN, *([swept] if sweeps else [])]
    return "\n".join([begun(groups, hybrids=hybrids, launches=launches, most=most), *lines, *notes, ""])


def result(found: Narrowed) -> str:
    """Return the answer, followed by its proof and what remains unknown."""
    answer, *rest = sentences(found)
    return "\n".join([answer, *(f"  {line}" for line in rest), ""])


def _counted(groups: Sequence[ComponentGroup]) -> str:
    components = sum(len(group.components) for group in groups)
    same = "" if components == len(groups) else f" ({components} components)"
    return f"the two versions differ in {len(groups)} group{'s' if len(groups) != 1 else ''}{same}"


def _rows(group: ComponentGroup) -> Iterator[tuple[str, str]]:
    if len(group.components) == 1:
        yield plain(group.id), _change(group.components[0])
        return
    yield plain(group.id), plain(f"together: {group.together}")
    for component in group.components:
        yield f"  {plain(component.name)}", _change(component)


def _change(component: Component) -> str:
    kind = "" if component.kind == "distribution" else f"{component.kind} "
    return f"{kind}{component_change(component)}{', mapped' if component.mapped else ''}"
