"""Describes a narrowed finding (the component that causes it, the proof, and what is unknown) for all reports and for
the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from harness import amounts
from harness.masking import is_private
from harness.narrow.records import Component, ComponentGroup, Culprit, HybridResult, Narrowed, ProofCell, SearchCost
from harness.report.text.harmless_text import plain, shortened

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
    what = " and ".join(
        group_text(part[0], narrowed)
        if len(part) == 1
        else f"one of {named_groups(part, narrowed)} (no hybrid separates them)"
        for part in culprit.parts
    )
    without = {cell.result.state for cell in culprit.proof if cell.role == "B - c"}
    another = f"and it is not known whether {bad} has another cause"
    if "bad" in without:
        another = f"and {bad} without it is still bad: there is another cause"
    elif without == {"good"}:
        another = f"and {bad} without it and the causes named before is good"
    said = {
        "culprit": f"culprit: {what}; {good} with it is bad, {bad} without it is good",
        "together": f"culprits together: {what}; {good} with all of them is bad, {bad} without any one of them is good",
        "needed": f"necessary: {what}; {bad} without it is good; whether it is sufficient is not known",
        "enough": f"sufficient: {what}; {good} with it is bad, {another}",
        "switch": f"involved: {what}; of two hybrids that differ only in it, one is good and one is bad",
    }[culprit.kind]
    if culprit.part_of_it and culprit.share is not None:
        interval = "" if culprit.share_ci is None else f" ({_percents(culprit.share_ci)})"
        said += f"; it accounts for {amounts.number(100 * culprit.share)} % of the effect{interval}"
    for group in (narrowed.by_id.get(part[0]) for part in culprit.parts if len(part) == 1):
        if group is not None and len(group.components) > 1:
            said += f"; its components cannot be separated, because {plain(group.together)}"
            if mapped := [plain(component.name) for component in group.components if component.mapped]:
                said += f"; of these {len(group.components)} the scenario maps {', '.join(mapped[:MOST_NAMED])}"
    if culprit.partners:
        said += f"; if it needs a partner, that is among {named_groups(culprit.partners, narrowed)}"
    return said


def _percents(interval: tuple[float, float]) -> str:
    return amounts.between((100 * interval[0], 100 * interval[1]))


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
    """Return a component's change: `numpy 1.26.4 → 2.0.0`, `library libcufft.so.10 → libcufft.so.11`."""
    if component.kind == "library":
        return f"library {_change(component)}"
    kind = "variable " if component.kind == "variable" else ""
    return f"{kind}{shortened(component.name, most=MOST_VALUE)} {_change(component)}"


def _change(component: Component) -> str:
    """Return `1.26.4 → 2.0.0`, `absent → 2.0.0`, or `1.26.4, with different content` if only the content differs. A
    private value of a variable is withheld.
    """

    def told(value: str | None) -> str:
        if value is None:
            return "absent"
        if component.kind == "variable" and is_private(component.name, value):
            return "[withheld]"
        return shortened(value, most=MOST_VALUE) or "empty"

    same = component.old == component.new
    return (
        f"{told(component.old)}, with different content" if same else f"{told(component.old)} → {told(component.new)}"
    )


# ---------------------------------------------------------------- proof


def proof(narrowed: Narrowed) -> list[str]:
    """Return a line for each version and hybrid of the proof. If only one group differs, the versions are the proof."""
    cells = [cell for culprit in narrowed.culprits for cell in culprit.proof]
    if not cells and not narrowed.shams:
        return []
    is_only = len(narrowed.by_id) == 1
    ends = ((narrowed.good, narrowed.a), (narrowed.bad, narrowed.b))
    return [
        *(f"{group_text(group, narrowed)}: no other component differs" for group in narrowed.by_id if is_only),
        *(f"{plain(name)}: {result_text(end)}" for name, end in ends if end is not None),
        *(
            f"{cell_title(cell, narrowed)}: {result_text(cell.result)}"
            for cell in (*(() if is_only else cells), *narrowed.shams)
        ),
    ]


def cell_title(cell: ProofCell, narrowed: Narrowed) -> str:
    """Return a hybrid's name: `20.12 with cuda-cufft`, `20.12 with its own cuda-cufft put in again`."""
    version = plain(narrowed.good if cell.role in ("A + c", "sham A") else narrowed.bad)
    if cell.role in ("A + c", "B - c"):
        names = ", ".join(map(plain, cell.groups[:MOST_NAMED])) + (" and more" if len(cell.groups) > MOST_NAMED else "")
        others = f", along with {amounts.count(len(cell.beside), 'other group')}" if cell.beside else ""
        return f"{version} {'with' if cell.role == 'A + c' else 'without'} {names}{others}"
    if len(cell.groups) == 1 < len(narrowed.groups):
        return f"{version} with its own {plain(cell.groups[0])} put in again"
    if len(cell.groups) == len(narrowed.groups):
        return f"{version} reassembled from its own parts"
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


def install_lines(narrowed: Narrowed) -> list[str]:
    """Return two `pip install` commands for the good version that differ only in the culprit; [] if there are none."""
    old, new = installs(narrowed) or ("", "")
    return [f"pip install --no-deps {old}  # good", f"pip install --no-deps {new}  # bad"] if old else []


def installs(narrowed: Narrowed) -> tuple[str, str] | None:
    """Return the culprit's requirements in the good version and in the bad version, as arguments of an installer.

    Return None unless every component of the culprit is a distribution with a version on both sides, and its
    requirements are plain `name==version` specifiers: the image's author chose the names of its components, and a
    reader pastes the command into a shell.
    """
    if narrowed.verdict != "found" or narrowed.culprits[0].kind not in ("culprit", "together", "enough"):
        return None
    groups = [narrowed.by_id.get(group) for group in narrowed.culprits[0].groups]
    parts = [component for group in groups if group is not None for component in group.components]
    old = " ".join(f"{component.name}=={component.old}" for component in parts)
    new = " ".join(f"{component.name}=={component.new}" for component in parts)
    is_installable = all(component.kind == "distribution" for component in parts)
    return (old, new) if is_installable and _SPECIFIERS.fullmatch(old) and _SPECIFIERS.fullmatch(new) else None


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


def begun(groups: Sequence[ComponentGroup], cost: SearchCost) -> str:
    """Return the line printed before the search."""
    components = sum(len(group.components) for group in groups)
    same = "" if components == len(groups) else f" ({components} components)"
    task = "finding one culprit among them" if len(groups) > 1 else "proving that it is the culprit"
    return (
        f"the two versions differ in {amounts.count(len(groups), 'group')}{same}; {task} takes about {cost.hybrids} "
        f"hybrids and {cost.launches} launches, at most {cost.most:,}"
    )


def differing(groups: Sequence[ComponentGroup], cost: SearchCost, *, sweeps: bool, by_exit_code: bool) -> str:
    """Return the table of a dry run. `sweeps`: no run has measured the two versions yet; `by_exit_code`: only the exit
    code of the scenario is judged, so no level can be worse.
    """
    rows = []
    for group in groups:
        alone = len(group.components) == 1
        rows += [] if alone else [(plain(group.id), plain(f"together: {group.together}"))]
        for component in group.components:
            kind = "" if component.kind == "distribution" else f"{component.kind} "
            change = f"{kind}{_change(component)}{', mapped' if component.mapped else ''}"
            rows.append((plain(group.id) if alone else f"  {plain(component.name)}", change))
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {what}" for name, what in rows]
    swept = [SWEPT if by_exit_code else f"{SWEPT} {LEVEL}"] if sweeps else []
    return "\n".join([begun(groups, cost), *lines, NOT_RUN, *swept, ""])


def result(found: Narrowed) -> str:
    """Return the answer, followed by its proof and what remains unknown."""
    answer, *rest = sentences(found)
    return "\n".join([answer, *(f"  {line}" for line in rest), ""])
