"""Whose fault it is, in one plain sentence. It never says more than is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from harness.model import UNSURE, Attribution, Cell, Finding, Lane, Metric, Pull, RunResult
from harness.report import phrases, words
from harness.report.clean import plain, version
from harness.report.episodes import History, histories, place_of_cell
from harness.report.rule import evidence, rule_text, when_text

MOST_AT_THE_TOP = 3
_MOST_CONTROLS = 3
_METRICS: dict[Metric, str] = {
    "memory": "memory", "step_time": "step time", "peak_memory": "peak memory", "outcome": "outcome",
}  # fmt: skip


def sentence(attribution: Attribution, result: RunResult) -> str:
    """`signal leaks 24 KiB a step since 22.12, on both cards, when input is random; not the RTX 4090's fault. …`"""
    return sentences([attribution], result)[0]


def sentences(attributions: Sequence[Attribution], result: RunResult) -> list[str]:
    """One for each; those of one scenario that end alike are told together: who, and all but what happened, once."""
    alike: dict[tuple[str, str], list[str]] = {}
    for one in attributions:
        names = _Names(one, result)
        what = ", ".join(filter(None, (_story(one, result, names), when_text(one))))
        alike.setdefault((_subject(one, result), _rest(one, names)), []).append(what)
    return [f"{subject} {'; '.join(what)}{rest}" for (subject, rest), what in alike.items()]


def _rest(attribution: Attribution, names: _Names) -> str:
    """`; not the RTX 4090's fault. Layer: native heap.`"""
    clauses = [_FAULTS[attribution.cause](attribution, names)]
    if attribution.unseen:
        clauses.append(_unseen(attribution, names))
    if attribution.controls:
        clauses.append(_controls(attribution.controls))
    layer = f" Layer: {plain(attribution.layer)}." if attribution.layer else ""
    return f"{''.join(f'; {each}' for each in clauses if each)}.{layer}"


def _controls(names: Sequence[str]) -> str:
    more = len(names) - _MOST_CONTROLS
    shown = [plain(name) for name in names[:_MOST_CONTROLS]] + ([f"{more} more scenarios"] if more > 0 else [])
    return f"{words.together(shown)} {'stays' if len(names) == 1 else 'stay'} good there"


def evidence_lines(result: RunResult) -> list[str]:
    """For each attribution: its cause, and what its rule rests on. Beyond those of the headline, with its sentence."""
    return [
        _evidence(one, sentence(one, result) if number >= MOST_AT_THE_TOP else "")
        for number, one in enumerate(result.attribution)
    ]


def _evidence(attribution: Attribution, told: str) -> str:
    subject = f"{plain(attribution.series)}, {plain(attribution.scenario)}, {_METRICS[attribution.metric]}"
    rule = rule_text(attribution.rule)
    rests = None if attribution.rule is None else evidence(attribution.rule)
    parts = [f"{subject}: {attribution.cause}", rule, rests, told.rstrip(".")]
    return "; ".join(part for part in parts if part)


def findings_of(attribution: Attribution, result: RunResult) -> list[Finding]:
    """The findings that an attribution is about."""
    return [
        one
        for one in result.findings
        if (one.series, one.metric) == (attribution.series, attribution.metric)
        and one.variant in attribution.variants
        and one.lane in attribution.bad_lanes
        and (one.verdict == "slowdown") == attribution.drifts
    ]


# ---------------------------------------------------------------- what, since when, and where


def _story(attribution: Attribution, result: RunResult, names: _Names) -> str:
    """`leaks 24 KiB a step since 22.12, on both cards`"""
    found = findings_of(attribution, result)
    told = sorted(histories(replace(result, findings=tuple(found))), key=_vagueness)
    size = phrases.sizes(phrases.effects([place for one in told for place in one.episodes], 0, result))
    if attribution.apart:
        each = [f"{phrases.when(one.episodes[0][0])} on {names.all_of(_lanes(one))}" for one in told]
        return f"{phrases.verb(found, size)} {words.together(each)}"
    where = names.all_of(attribution.bad_lanes)
    if all(one.kind == "bad_from_start" for one in found) and len(attribution.images) == 1:
        return f"{phrases.verb(found, size)} in {version(attribution.images[0])}, on {where}"
    return f"{phrases.story(told, result)}, on {where}"


def _subject(attribution: Attribution, result: RunResult) -> str:
    """`signal`, `multidict: headers`"""
    series = f"{plain(attribution.series)}: " if _is_named(attribution, result) else ""
    return f"{series}{plain(attribution.scenario)}"


def _unseen(attribution: Attribution, names: _Names) -> str:
    variants = len({str(variant) for variant, _ in attribution.unseen})
    lanes = list(dict.fromkeys(lane for _, lane in attribution.unseen))
    return f"{variants} of these {len(attribution.variants)} variants not known on {names.all_of(lanes)}"


def _is_named(attribution: Attribution, result: RunResult) -> bool:
    """Whether the series must be told: there are several, or its versions are those of a package of that name."""
    series = {block.series.name: block.series for block in result.plan.blocks}
    return len(series) > 1 or not all(isinstance(one.source, Pull) for one in series[attribution.series].images)


def _vagueness(history: History) -> tuple[bool, int]:
    """The history that says most comes first: one with a last good version, and few that cannot be told."""
    first = history.findings[0]
    return first.before is None, len(first.untestable)


def _lanes(history: History) -> list[Lane]:
    return list(dict.fromkeys(one.lane for one in history.findings))


# ---------------------------------------------------------------- whose fault


def _image(attribution: Attribution, names: _Names) -> str:
    clauses = [_cleared(attribution, names)]
    if attribution.open_lanes:
        clauses.append(f"not known for {names.all_of(attribution.open_lanes)}")
    return "; ".join(filter(None, clauses))


def _cleared(attribution: Attribution, names: _Names) -> str:
    if len(attribution.bad_lanes) < 2:
        return ""
    if attribution.apart:
        return "the image's fault on each of them"
    if attribution.alike and attribution.bad_lanes[0].gpu is not None:
        return "not the host's fault" if len({lane.host.name for lane in attribution.bad_lanes}) > 1 else ""
    if attribution.cleared and len(attribution.cleared) < len(attribution.bad_lanes):
        return f"not {names.faults(attribution.cleared)}"
    return f"not the {names.kind(attribution.bad_lanes)}'s fault"


def _gpu(attribution: Attribution, names: _Names) -> str:
    doubt = _or_of_hosts(attribution)
    return f"{names.good_with(attribution)}: the fault of {names.all_of(attribution.bad_lanes)}{doubt}, not the image's"


def _or_of_hosts(attribution: Attribution) -> str:
    """`, or of its host (new)`: hosts where no card is good, unless one kind of card is bad in several."""
    hosts = {lane.host.name for lane in attribution.bad_lanes}
    doubted = sorted(hosts - {lane.host.name for lane in attribution.good_lanes})
    if not doubted or (attribution.alike and len(hosts) > 1):
        return ""
    if len(doubted) < len(hosts):
        return f", or of {words.together([f'host {plain(one)}' for one in doubted])}"
    whose = "its" if len(attribution.bad_lanes) == 1 else "their"
    return f", or of {whose} host{'s' if len(doubted) > 1 else ''} ({words.together([plain(one) for one in doubted])})"


def _host(attribution: Attribution, names: _Names) -> str:
    hosts = words.together(sorted({f"host {plain(lane.host.name)}" for lane in attribution.bad_lanes}))
    return f"{names.good_with(attribution)}: the fault of {hosts}, not the image's"


def _interaction(attribution: Attribution, names: _Names) -> str:
    if not attribution.good_lanes:
        return "no image is bad on all of them: it takes both the image and the lane"
    several = len(attribution.bad_lanes) > 1
    lanes = f"one of these {names.kind(attribution.bad_lanes)}s" if several else names.blamed(attribution.bad_lanes)
    return f"{names.good_with(attribution)}: it takes both the image and {lanes}"


def _undecided(attribution: Attribution, names: _Names) -> str:
    lanes = names.blamed(attribution.bad_lanes)
    doubts = {
        "image or lane": f"whether the image or {lanes} is at fault is undecided",
        "lane or both": f"{names.good_with(attribution)}; whether {lanes} alone is at fault is undecided",
        "nothing good": "there is nothing good to compare with, so whose fault it is is undecided",
    }
    return f"{doubts[attribution.doubt or 'image or lane']}: {_way(attribution, names)}"


def _way(attribution: Attribution, names: _Names) -> str:
    """What would tell."""
    if attribution.missing:
        return names.way_out(attribution.missing[0])
    if attribution.doubt == "nothing good" and names.oldest in attribution.images:
        return "add an older version; if that is bad too, the scenario may do it by itself"
    return "no cell of this matrix can tell, so add a host, or a version that runs there"


_FAULTS: dict[str, Callable[[Attribution, _Names], str]] = {
    "image": _image,
    "gpu": _gpu,
    "host": _host,
    "interaction": _interaction,
    "undecided": _undecided,
}


# ---------------------------------------------------------------- names of lanes


class _Names:
    """What lanes are called: a card by its name where that names one lane only, else as in all reports."""

    def __init__(self, attribution: Attribution, result: RunResult) -> None:
        self._cells = result.cells
        blocks = [block for block in result.plan.blocks if block.series.name == attribution.series]
        self.oldest = blocks[0].series.images[0].version
        self._lanes = dict.fromkeys(
            block.lane for block in blocks if block.variant.scenario.name == attribution.scenario
        )

    def one(self, lane: Lane) -> str:
        twins = [other for other in self._lanes if other.gpu == lane.gpu]
        is_name = lane.gpu is not None and lane.gpu not in ("all", "each") and any(map(str.isalpha, lane.gpu))
        return f"the {plain(lane.gpu or '')}" if is_name and len(twins) == 1 else words.lane_text(lane)

    def all_of(self, lanes: Sequence[Lane]) -> str:
        """`the RTX 4090`, `both cards`, `all 3 hosts`, `old and new`."""
        if len(lanes) < 2 or set(lanes) != set(self._lanes):
            return words.together([self.one(lane) for lane in lanes])
        kinds = f"{self.kind(lanes)}s"
        return f"both {kinds}" if len(lanes) == 2 else f"all {len(lanes)} {kinds}"

    def kind(self, lanes: Sequence[Lane]) -> str:
        if all(lane.gpu is not None for lane in lanes):
            return "card"
        return "host" if all(lane.gpu is None for lane in lanes) else "lane"

    def blamed(self, lanes: Sequence[Lane]) -> str:
        """`the RTX 4090`, `host new`"""
        return words.together([self.one(lane) if lane.gpu else f"host {self.one(lane)}" for lane in lanes])

    def faults(self, lanes: Sequence[Lane]) -> str:
        """`the RTX 4090's fault`, `the fault of a and b`"""
        name = self.blamed(lanes)
        return f"{name}'s fault" if name.startswith("the ") and len(lanes) == 1 else f"the fault of {name}"

    def good_with(self, attribution: Attribution) -> str:
        """`the same image is good on the RTX 3090`"""
        image = version(attribution.images[0]) if len(attribution.images) == 1 else "the same images"
        verb = "is" if len(attribution.images) == 1 else "are"
        return f"{image} {verb} good on {words.together([self.one(lane) for lane in attribution.good_lanes])}"

    def way_out(self, cell: Cell) -> str:
        """What to run, or what else to do where it was run already."""
        what = f"{version(cell.image.version)} on {self.one(cell.lane)}"
        tried = next((one.verdict for one in self._cells if place_of_cell(one.cell) == place_of_cell(cell)), None)
        if tried is not None and tried.verdict in UNSURE and tried.trials > 1:
            return f"{what} would tell, but is {tried.verdict} after {tried.trials} launches: give it more steps"
        left_out = ", which the matrix leaves out," if cell.excluded is not None else ""
        return f"run {what}{left_out} to tell"
