"""States whose fault it is (image, card or host), and names lanes in sentences; never claims more than the attribution.

A lane is named by its card if no other lane has the same card.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness import amounts
from harness.model import (
    FAILURES,
    GOOD,
    UNSURE,
    Attribution,
    Cell,
    CellVerdict,
    Install,
    Lane,
    RunResult,
    Varied,
    grouped,
)
from harness.model.signals import is_told_alone
from harness.report.text.harmless_text import plain, version
from harness.report.text.names import cell_key, lane_text, some_of, together

_EITHER = "host or card"
LOCAL = "local"
"""The name of the default host, which sentences call `this machine`."""
_MOST_CONTROLS = 3
MOST_PACKAGES = 4


def cause_text(attribution: Attribution, result: RunResult) -> str:
    """Return `not the RTX 4090's fault; torch_ops stays good there`; "" if no lane or control needs a clause."""
    names = LaneNames(attribution, result)
    match attribution.cause:
        case "image":
            cause = _image(attribution, names)
        case "gpu" | "host" | "software":
            of = ", or of ".join(_culprits(attribution, names))
            cause = f"{names.good_with(attribution)}: the fault of {of}, not the image's"
        case "interaction" if not attribution.good_lanes:
            cause = "no image is bad on all of them: it takes both the image and the host or card"
        case "interaction":
            either = _culprits(attribution, names)
            other = f"{'either ' if len(either) > 1 else ''}{' or '.join(either)}"
            cause = f"{names.good_with(attribution)}: it takes both the image and {other}"
        case "undecided":
            cause = "; ".join(
                filter(None, (_alike_elsewhere(attribution, result, names), _undecided(attribution, names)))
            )
    return "; ".join(filter(None, (cause, _controls(attribution, names))))


def whose_fault(attribution: Attribution, result: RunResult, *, before: str | None, after: str) -> str:
    """Return `cause_text`, for an image's fault after whose it is: the image's, the value's of a variable, or a
    package's if the harness installed those of `before` and `after`, between which the fault begins or ends. Packages
    that came with them count, too.
    """
    whose = "" if attribution.cause != "image" else "the image's"
    row = next(row for row in result.plan.rows if row.series.name == attribution.series)
    if whose and isinstance(source := row.series.images[0].source, Varied):
        whose = f"that of the value of {plain(source.variable)}"
    installed = {
        image.version: frozenset(image.source.packages)
        for image in row.series.images
        if isinstance(image.source, Install) and (before is None or image.version in (before, after))
    }
    if whose and len(installed) > 1:
        found = {
            entry.cell.image.version: frozenset(f"{name}=={told}" for name, told in packages.items())
            for entry in result.cells
            for trial in entry.trials
            if entry.cell.image.series == attribution.series and (packages := trial.facts.packages) is not None
        }
        known = found if found.keys() >= installed.keys() else installed
        sides = [known[name] for name in installed]
        changed = {
            re.split(r"[^\w.-]", one.strip(), maxsplit=1)[0].lower().replace("_", "-")
            for one in sides[0].union(*sides).difference(sides[0].intersection(*sides[1:]))
        }
        whose = "the package's"
        if len(changed) > 1:
            named = sorted(changed, key=lambda name: (name != attribution.series, name))  # first the one that is varied
            whose = f"one of the {len(changed):,} packages that differ ({some_of(named, MOST_PACKAGES)})"
    return "; ".join(filter(None, (whose, cause_text(attribution, result))))


def _controls(attribution: Attribution, names: LaneNames) -> str:
    """Return `torch_ops stays good there`: the scenarios that are good where this one is bad."""
    controls = [plain(name) for name in attribution.controls]
    if not controls:
        return ""
    there = " there" if names.on(attribution.bad_lanes) else ""
    noun = "scenario" if len(controls) == _MOST_CONTROLS + 1 else "scenarios"
    shown = some_of(controls, _MOST_CONTROLS, rest=f"{{}} more {noun}")
    return f"{shown} {'stays' if len(controls) == 1 else 'stay'} good{there}"


def _image(attribution: Attribution, names: LaneNames) -> str:
    bad, told = attribution.bad_lanes, ""
    if len(bad) > 1 and attribution.apart:
        told = "the image's fault on each of them"
    elif len(bad) > 1 and attribution.alike and bad[0].gpu is not None:
        told = "not the host's fault" if len({lane.host.name for lane in bad}) > 1 else ""
    elif len(bad) > 1 and attribution.cleared and len(attribution.cleared) < len(bad):
        told = f"not {names.faults(attribution.cleared)}"
    elif len(bad) > 1:
        told = f"not the {names.kind(bad)}'s fault"
    unknown = f"unknown on {names.all_of(attribution.open_lanes)}" if attribution.open_lanes else ""
    if attribution.missing and unknown:
        unknown = f"{unknown}: {names.passed(attribution, what='it')}"
    return "; ".join(filter(None, (told, unknown)))


def _culprits(attribution: Attribution, names: LaneNames) -> list[str]:
    """Return what may be at fault, alone or only with the image: the cards; `its host (new)` for hosts without a good
    card, unless one kind of card is bad on several; and `driver 580.65.06`, which all bad lanes have, and no good one.
    """
    bad, good, software = attribution.bad_lanes, attribution.good_lanes, list(map(plain, attribution.software))
    hosts, cleared = {lane.host.name for lane in bad}, {lane.host.name for lane in good}
    is_host = (
        len(hosts) == 1 and hosts.isdisjoint(cleared) and {lane.gpu for lane in bad} <= {lane.gpu for lane in good}
    )
    if attribution.cause == "software":
        return software
    if attribution.cause == "host" or (attribution.cause == "interaction" and is_host):
        return [together(sorted(map(host_name, hosts))), *software]
    several = f"one of these {names.kinds(bad)}" if attribution.cause == "interaction" and len(bad) > 1 else ""
    cards = names.kind_of_card(bad) or several or names.blamed(bad)
    if len(attribution.machines) > 1:  # the fault is on several machines of a pool
        hosts -= {lane.host.name for lane in bad if lane.host.pool}
    doubted = sorted(hosts - cleared - {lane.host.name for lane in bad if lane.gpu is None})
    if not doubted or (attribution.alike and len(hosts) > 1):
        return [cards, *software]
    if len(doubted) < len(hosts):
        return [cards, together([host_name(host) for host in doubted]), *software]
    whose = "its" if len(bad) == 1 else "their"
    pools = {lane.host.name for lane in bad if lane.host.pool}
    machines = [plain(attribution.machines[0] if attribution.machines and host in pools else host) for host in doubted]
    return [cards, f"{whose} host{'s' if len(doubted) > 1 else ''} ({together(machines)})", *software]


def _undecided(attribution: Attribution, names: LaneNames) -> str:
    lanes = names.blamed(attribution.bad_lanes)
    if attribution.missing and (passed := names.passed(attribution, what="the fault")):
        return f"{passed}, so the cause is undecided"
    doubt = attribution.doubt or "image or lane"
    doubts = {
        "image or lane": f"whether the image or {lanes} is at fault is undecided",
        "lane or both": f"{names.good_with(attribution)}; whether {lanes} alone is at fault is undecided",
        "nothing good": "there is nothing good to compare with, so the cause is undecided",
    }
    kinds = {lane.gpu or lane.host.name for lane in attribution.bad_lanes}
    several = len({lane.host for lane in attribution.bad_lanes}) > 1 and len(kinds) > 1 and not attribution.alike
    cleared = f"not the {names.kind(attribution.bad_lanes)}'s fault; " if doubt == "nothing good" and several else ""
    return f"{cleared}{doubts[doubt]}: {_way(attribution, names)}"


def _alike_elsewhere(attribution: Attribution, result: RunResult, names: LaneNames) -> str:
    """Return `the RTX 3090 fails alike in 1 of 29 launches` of lanes that are not bad; "" if none has the failure."""
    if attribution.metric != "outcome":
        return ""
    launches = grouped(
        (entry.cell.lane, trial)
        for entry in result.cells
        if entry.cell.image.series == attribution.series and entry.cell.variant in attribution.variants
        for trial in entry.trials
        if trial.measured
        and (entry.cell.lane in attribution.open_lanes or entry.cell.image.version in attribution.images)
    )
    bad = [trial for lane in attribution.bad_lanes for trial in launches.get(lane, ()) if trial.end in FAILURES]
    same, told = {trial.failed_by for trial in bad}, []
    for lane in attribution.open_lanes:
        own = launches.get(lane, ())
        if failed := sum(trial.end in FAILURES and trial.failed_by in same for trial in own):
            told.append(f"{names.one(lane)} fails alike in {failed} of {amounts.count(len(own), 'launch')}")
    return "; ".join(told)


def _way(attribution: Attribution, names: LaneNames) -> str:
    """Return what to do to settle the question."""
    if attribution.suspect:
        machine = plain(attribution.suspect)
        return (
            f"everything ran on {machine}, where nothing is good, so {machine} itself may be at fault; "
            f"to settle it, take it out of the pool and sweep again"
        )
    if attribution.missing:
        return names.way_out(attribution)
    if attribution.doubt == "nothing good" and names.oldest in attribution.images:
        return "add an older version; if that is bad too, the scenario itself may be the cause"
    return "no cell of this matrix can settle it, so add a host, or a version that runs there"


# ---------------------------------------------------------------- the names of lanes


def host_name(name: str) -> str:
    """Return the host's name with its noun: `host old`, or `this machine`."""
    return "this machine" if name == LOCAL else f"host {plain(name)}"


class LaneNames:
    """Names the lanes of one attribution. In a run with one host and one lane, `on` names only a named card."""

    def __init__(self, attribution: Attribution, result: RunResult) -> None:
        self._cells, self._plan = result.cells, result.plan
        rows = [row for row in result.plan.rows if row.series.name == attribution.series]
        self.oldest = rows[0].series.images[0].version
        self._lanes = dict.fromkeys(row.lane for row in rows if row.variant.scenario.name == attribution.scenario)
        hosts = {host.name for host in result.plan.matrix.hosts} | {lane.host.name for lane in self._lanes}
        self._is_only = len(hosts) == len(self._lanes) == 1

    def one(self, lane: Lane) -> str:
        """Return `the RTX 4090` if only this lane has that card, otherwise the lane's full name."""
        return self._noun(lane) or lane_text(lane)

    def _noun(self, lane: Lane) -> str:
        """Return `the RTX 4090` or `this machine`; "" if only its full name distinguishes the lane from others."""
        same_card = [other for other in self._lanes if other.gpu == lane.gpu]
        if _has_name(lane) and len(same_card) == 1:
            return f"the {plain(lane.gpu or '')}"
        return host_name(LOCAL) if lane.gpu is None and lane.host.name == LOCAL else ""

    def on(self, lanes: Sequence[Lane]) -> str:
        """Return `on both cards`; "" if the run has only one lane and its card has no name."""
        return "" if self._is_only and not any(map(_has_name, lanes)) else f"on {self.all_of(lanes)}"

    def all_of(self, lanes: Sequence[Lane]) -> str:
        """Return a phrase for all these lanes: `the RTX 4090`, `both cards`, `all 3 hosts` or `old and new`."""
        if len(lanes) < 2 or set(lanes) != set(self._lanes) or self.kind(lanes) == _EITHER:
            return together([self.one(lane) for lane in lanes])
        return amounts.every(len(lanes), self.kind(lanes))

    def kind(self, lanes: Sequence[Lane]) -> str:
        """Return the noun for these lanes: `card`, `host`, or `host or card` if only some of them have a GPU."""
        if all(lane.gpu is not None for lane in lanes):
            return "card"
        return "host" if all(lane.gpu is None for lane in lanes) else _EITHER

    def kind_of_card(self, lanes: Sequence[Lane]) -> str:
        """Return `the RTX 4090` if these are several lanes, and all that have that card; else ""."""
        alike = [lane for lane in self._lanes if lane.gpu == lanes[0].gpu]
        return (
            f"the {plain(lanes[0].gpu or '')}" if set(alike) == set(lanes) != {lanes[0]} and _has_name(lanes[0]) else ""
        )

    def kinds(self, lanes: Sequence[Lane]) -> str:
        """Return the plural of `kind`."""
        return "hosts or cards" if self.kind(lanes) == _EITHER else f"{self.kind(lanes)}s"

    def blamed(self, lanes: Sequence[Lane]) -> str:
        """Return the card or host to blame: `the RTX 4090` or `host new`."""
        return together([self.one(lane) if lane.gpu else host_name(lane.host.name) for lane in lanes])

    def faults(self, lanes: Sequence[Lane]) -> str:
        """Return the possessive phrase: `the RTX 4090's fault` or `the fault of a and b`."""
        noun = self._noun(lanes[0]) if len(lanes) == 1 else ""
        return f"{noun}'s fault" if noun else f"the fault of {self.blamed(lanes)}"

    def good_with(self, attribution: Attribution) -> str:
        """Return where the bad images are good: `22.12 is good on the RTX 3090`, `the same images are good on …`."""
        image = version(attribution.images[0]) if len(attribution.images) == 1 else "the same images"
        verb = "is" if len(attribution.images) == 1 else "are"
        return f"{image} {verb} good on {together([self.one(lane) for lane in attribution.good_lanes])}"

    def passed(self, attribution: Attribution, *, what: str) -> str:
        """Return `1.2 passed 4 launches, too few to rule it out (more: …)` if the cell that would tell is good, but may
        have the fault; else "". `what` is to be ruled out.
        """
        cell = attribution.missing[0]
        tried = self._tried(cell)
        if tried is None or tried.verdict not in GOOD:
            return ""
        launches, more = amounts.count(tried.trials, "launch"), " ".join(self.options(attribution))
        return f"{self._what(cell)} passed {launches}, too few to rule {what} out (more: `{more}`)"

    def options(self, attribution: Attribution) -> list[str]:
        """Return the options of a sweep that launches the missing cell: as many launches as in this run, so that no
        known one is left out, or twice as many if it passed all of them. `--decide` launches one version alone, which
        tells no level.
        """
        asked, tried = self._plan.trials, self._tried(attribution.missing[0])
        if tried is None or tried.verdict not in GOOD:
            decides, is_full = True, tried is not None and tried.trials >= asked.most
        else:
            decides = is_told_alone(attribution.metric)
            is_full = not decides or tried.trials >= asked.most
        known = [] if asked == self._plan.matrix.trials else ["--trials", f"{asked.least}:{asked.most}"]
        more = ["--trials", f"{asked.least}:{2 * asked.most}"] if is_full else known
        return [*more, *(["--decide"] if decides else [])]

    def way_out(self, attribution: Attribution) -> str:
        """Return how to settle the question with the missing cell: run it, launch it more often if it fails now and
        then, or let its launches step more if they can."""
        cell = attribution.missing[0]
        what, tried = self._what(cell), self._tried(cell)
        if tried is not None and tried.verdict in UNSURE and tried.trials > 1:
            more = "" if cell.variant.scenario.command else ": let it run longer"
            if attribution.metric == "outcome":
                more = f": launch it more often (`{' '.join(self.options(attribution))}`)"
            return f"{what} would settle it, but is {tried.verdict} after {tried.trials} launches{more}"
        left_out = ", which the matrix leaves out," if cell.excluded is not None else ""
        return f"run {what}{left_out} to settle it"

    def _what(self, cell: Cell) -> str:
        return f"{version(cell.image.version)} {self.on([cell.lane])}".rstrip()

    def _tried(self, cell: Cell) -> CellVerdict | None:
        return next((entry.verdict for entry in self._cells if cell_key(entry.cell) == cell_key(cell)), None)


def _has_name(lane: Lane) -> bool:
    """Return whether the lane's GPU is selected by a name, rather than by a number, `all` or `each`."""
    return lane.gpu is not None and lane.gpu not in ("all", "each") and any(map(str.isalpha, lane.gpu))
