"""Writes the clause for one fault: what it does and how much, since when, on which lanes, and with which params."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.model import SIGNALS, Attribution, CellResult, Effect, Episode, Finding, Lane, Pull, RunResult, signal_of
from harness.model.attributed import lane_bounds
from harness.model.episodes import EpisodeBounds, Order, met, sign_of, span
from harness.report.bad_ranges import place_of, place_of_cell, side_of
from harness.report.text.faults import finding_phrases
from harness.report.text.faults.lane_names import Names
from harness.report.text.faults.param_rule import when_text
from harness.report.text.harmless_text import plain, version


@dataclass(frozen=True, kw_only=True)
class Clause:
    """The parts of a clause.

    For example, `verb` is `leaks 7.8 KiB a step`, `again` is its short form after another leak, `7.8 KiB a step`,
    `when` is `since 6.3.0`, and `tail` is `, on both cards, when a is 1`. Clauses of the same `kind` share a verb.
    """

    kind: str
    verb: str
    again: str
    when: str
    tail: str


def clause_of(attribution: Attribution, result: RunResult) -> Clause:
    names = Names(attribution, result)
    found = [episode.finding for episode in attribution.episodes]
    effects = _effects(attribution, result)
    size = _size_text(effects, attribution, result)
    when, where = _when_and_where(attribution, result, names)
    return Clause(
        kind=sign_of(found[0]),
        verb=finding_phrases.verb(found, size, is_share=finding_phrases.is_share(effects)),
        again=finding_phrases.again(found[0], size),
        when=when,
        tail="".join(f", {part}" for part in (where, when_text(attribution)) if part),
    )


def subject_of(attribution: Attribution, result: RunResult) -> str:
    """Return the subject of the sentence: `signal`, `multidict` or `multidict: headers`.

    The subject is the scenario alone if the run has a single series, of pulled images. It is the series alone if the
    series is not of pulled images and series and scenario occur only with each other. Otherwise it is both.
    """
    series = {row.series.name: row.series for row in result.plan.rows}
    pairs = {(row.series.name, row.variant.scenario.name) for row in result.plan.rows}
    of_images = all(isinstance(image.source, Pull) for image in series[attribution.series].images)
    name, scenario = plain(attribution.series), plain(attribution.scenario)
    if of_images and len(series) == 1:
        return scenario
    is_only = (
        sum(attribution.series == series_name or attribution.scenario == other for series_name, other in pairs) == 1
    )
    return name if is_only and not of_images else f"{name}: {scenario}"


def severity(attribution: Attribution) -> tuple[bool, int, float]:
    """Return a sort key that puts the worst first: lasting faults before fixed ones, then the order of the signals
    (failures, growth, levels, values), then the size.
    """
    found = [episode.finding for episode in attribution.episodes]
    effects = [finding.effect for finding in found if finding.effect is not None]
    largest = max(map(_extent, effects), default=0.0)
    return not _lasts(attribution), _rank(found[0]), -largest


def place_in_sentence(attribution: Attribution, result: RunResult) -> tuple[bool, int]:
    """Return a sort key for faults that share a sentence: lasting faults before fixed ones, then the oldest first."""
    order = order_of(attribution, result)
    return not _lasts(attribution), min(span(episode, order).start for episode in attribution.episodes)


def _lasts(attribution: Attribution) -> bool:
    return any(episode.ends is None for episode in attribution.episodes)


def _extent(effect: Effect) -> float:
    return abs(math.log(effect.value)) if effect.unit == "ratio" and effect.value > 0 else effect.value


def _rank(finding: Finding) -> int:
    order = [*SIGNALS, finding.metric]
    return 1 if finding.verdict == "nan" else 2 * order.index(finding.metric)


def telling_of(attribution: Attribution) -> Episode:
    """Return the episode that represents the attribution: among those with a known beginning, if any, the one with the
    largest effect.
    """
    return max(attribution.episodes, key=_weight)


def _weight(episode: Episode) -> tuple[bool, float]:
    effect = episode.finding.effect
    return episode.begins is not None, 0.0 if effect is None else effect.value


def order_of(attribution: Attribution, result: RunResult) -> Order:
    """Return the position of each version in the attribution's series, 0 for the oldest."""
    row = next(row for row in result.plan.rows if row.series.name == attribution.series)
    return {cell.image.version: place for place, cell in enumerate(row.cells)}


# ---------------------------------------------------------------- since when, and where


def _when_and_where(attribution: Attribution, result: RunResult, names: Names) -> tuple[str, str]:
    order = order_of(attribution, result)
    versions, lanes = list(order), lane_bounds(attribution, order)
    together = _together(list(lanes.values()))
    if together is not None:
        return _when(together, attribution, versions), names.on(attribution.bad_lanes)
    apart: dict[tuple[EpisodeBounds, ...], list[Lane]] = {}
    for lane, bounds in lanes.items():
        apart.setdefault(bounds, []).append(lane)
    precise_first = sorted(apart.items(), key=lambda entry: _vagueness(entry[0]))
    clauses = [f"{_when(bounds, attribution, versions)} on {names.all_of(some)}" for bounds, some in precise_first]
    return " and ".join(clauses), ""


def _together(lanes: Sequence[tuple[EpisodeBounds, ...]]) -> tuple[EpisodeBounds, ...] | None:
    """Return the bounds that hold on all lanes; None if the lanes must have changed at different versions."""
    if len({len(bounds) for bounds in lanes}) > 1:
        return None
    found = [met(same) for same in zip(*lanes, strict=True)]
    known = [bounds for bounds in found if bounds is not None]
    return tuple(known) if len(known) == len(found) else None


def _vagueness(several: Sequence[EpisodeBounds]) -> tuple[bool, int]:
    """Return a sort key, most precise first: bounds with a last good version, then those that span fewest versions."""
    last, first = several[0].begins or (-1, several[0].seen)
    return last < 0, first - last


def _when(several: Sequence[EpisodeBounds], attribution: Attribution, versions: Sequence[str]) -> str:
    only = several[0]
    if len(several) == len(attribution.images) == 1 and only.begins is not None and only.begins[0] < 0:
        return f"in {version(attribution.images[0])}{finding_phrases.fixed(only, versions)}"
    return " and ".join(finding_phrases.when(bounds, versions) for bounds in several)


# ---------------------------------------------------------------- how much


Cells = Mapping[tuple[str, str, str, str], CellResult]


def _cells(result: RunResult) -> Cells:
    return {place_of_cell(entry.cell): entry for entry in result.cells}


def _effects(attribution: Attribution, result: RunResult) -> list[Effect]:
    """Return the sizes of the fault over all lanes and variants; growth rates also over all bad versions."""
    order, cells = order_of(attribution, result), _cells(result)
    known = [effect for episode in attribution.episodes if (effect := size_of(episode)) is not None]
    return known + [growth for episode in attribution.episodes for growth in _growths(episode, result, order, cells)]


def _size_text(effects: Sequence[Effect], attribution: Attribution, result: RunResult) -> str:
    """Return the size of the fault as text; if it got worse, with its size before."""
    size = finding_phrases.sizes(effects)
    if not attribution.episodes[0].depth:
        return size
    cells = _cells(result)
    sides = [side_of(episode.finding, episode.finding.before) for episode in attribution.episodes]
    before = [growth_of(cells[side], attribution.metric) for side in sides if side in cells]
    return finding_phrases.more(size, finding_phrases.sizes([effect for effect in before if effect is not None]))


def size_of(episode: Episode) -> Effect | None:
    """Return the size of the fault; None if unknown. If only its end is known, the ratio of the fix is inverted."""
    effect = episode.finding.effect
    if effect is None or episode.begins is not None or effect.unit != "ratio" or effect.value <= 0:
        return effect
    return replace(effect, value=1 / effect.value, ci=None)


def _growths(episode: Episode, result: RunResult, order: Order, cells: Cells) -> Iterator[Effect]:
    """Yield the growth rates of the episode's versions, up to the next version at which the growth gets worse."""
    finding = episode.finding
    if signal_of(finding.metric).kind != "growth":
        return
    here = [other for other in result.findings if place_of(other) == place_of(finding)]
    worse = {other.after for other in here if other.kind == "worse"}
    versions = list(order)
    for place in span(episode, order):
        if versions[place] in worse and versions[place] != finding.after:
            return
        entry = cells.get(side_of(finding, versions[place]))
        rate = None if entry is None else growth_of(entry, finding.metric)
        if rate is not None:
            yield rate


def growth_of(entry: CellResult, metric: str) -> Effect | None:
    """Return the growth rate of a cell; None unless the cell is bad in `metric`."""
    verdict = entry.verdict
    memory = verdict.of("memory")
    if metric == "memory" and "leak" in verdict.verdicts and memory.value is not None:
        return Effect(value=memory.value, unit=signal_of(metric).unit, ci=memory.ci)
    seen = verdict.signals.get(metric)
    if metric == "memory" or seen is None or seen.seen != "bad" or seen.value is None:
        return None
    return Effect(value=seen.value, unit=signal_of(metric).unit, ci=seen.ci)
