"""Builds the sentence of a fault: subject, what it does and how much, since when, on which lanes, with which params.

All reports take it from here; `fault_causes` adds whose fault it is. All figures are those of the findings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from harness import amounts
from harness.agent.serving import GRACE_S
from harness.model import (
    LEVELS,
    SIGNALS,
    Attribution,
    CellResult,
    Effect,
    Episode,
    Finding,
    Lane,
    Metric,
    ParamCondition,
    Per,
    Pull,
    Rule,
    RunResult,
    Trial,
    Variant,
    grouped,
    signal_of,
    written,
)
from harness.model.attributed import Order, met, mostly_fixed, on_lanes
from harness.report.text import finding_words, signal_words
from harness.report.text.fault_causes import LaneNames, cause_text
from harness.report.text.finding_words import magnitude
from harness.report.text.harmless_text import plain, version
from harness.report.text.names import at_most, cell_key, ordered, params_text, row_key, side_of, together

MOST_AT_THE_TOP = 3
_DOUBLE = 2.0
"""A smaller ratio is written as a share."""
_MEASURES: Mapping[str, tuple[str, str, str]] = {
    "longer": ("longer", "shorter", "as long"),
    "more": ("more", "less", "as much"),
    "less": ("more", "less", "as much"),
    "fewer": ("more", "fewer", "as many"),
    "higher": ("higher", "lower", "what it was"),
}
"""The words after a share that is added, a share that is taken away, and a number of times, by the place in a verb."""


def clause(attribution: Attribution, result: RunResult) -> str:
    """Return what is wrong, how much, since when, where, and with which params:
    `signal leaks 24 KiB/step since 22.12, on both cards`.
    """
    found = [episode.finding for episode in attribution.episodes]
    effects = [effect for episode in attribution.episodes if (effect := size_of(episode)) is not None]
    if attribution.metric == "outcome" and len(effects) > 1:
        effects = _failing_share(attribution, result) or effects
    size = sizes(effects, metric=attribution.metric)
    if all(episode.depth for episode in attribution.episodes) and size and effects[0].unit == "ratio":
        size = f"a further {size}"
    since, where = _since_and_where(attribution, result)
    what = _killed(found[0], result)
    what = what or predicate(found, size or _instead(found, result), gives=gives(attribution, result))
    if found[0].verdict == "two modes":
        slow, launches = slow_launches(_bad_cells(attribution, result))
        what = f"{what} in {slow} of {amounts.count(launches, 'launch')}"
    if (number := _rank(attribution, result)) is not None:
        named = what.replace("has a rank that takes", f"rank {number} takes")
        what = f"{what} in rank {number}" if named == what else named
    said = f"{_subject(attribution, result)}{':' if what.startswith(('`', 'rank ')) else ''} {what} {since}"
    warm = "with a warm cache" if is_warm(attribution, result) else ""
    most = _most_on(attribution, result) if " to " in size else ""
    return ", ".join(filter(None, (said, where, most, params_clause(attribution), warm)))


def _most_on(attribution: Attribution, result: RunResult) -> str:
    """Return `most on the RTX 4090`, where the fault is certainly larger than on any other lane; "" if it is not."""
    sized = [(each.finding.lane, effect) for each in attribution.episodes if (effect := size_of(each)) is not None]
    found = grouped((lane, end) for lane, effect in sized for end in _strength(effect))
    lane = max(found, key=lambda each: min(found[each]))
    others = [max(ends) for other, ends in found.items() if other != lane]
    is_sure = others and min(found[lane]) > max(others) and len({effect.unit for _, effect in sized}) == 1
    return f"most on {LaneNames(attribution, result).one(lane)}" if is_sure else ""


def _strength(effect: Effect) -> Sequence[float]:
    """Return the bounds of an effect; those of a ratio below 1 as its inverse."""
    return [1 / each if effect.unit == "ratio" and 0 < each < 1 else each for each in effect.bounds]


def _killed(finding: Finding, result: RunResult) -> str:
    """Return `does not end on SIGTERM` with what followed, of a server that was killed; "" of anything else."""
    if finding.metric != "end_time" or not finding.variant.scenario.serve:
        return ""
    place = side_of(finding, finding.after)
    took_s = [entry.verdict.of("end_time").value for entry in result.cells if cell_key(entry.cell) == place]
    is_killed = any(value is not None and value >= GRACE_S for value in took_s)
    return f"does not end on SIGTERM, and is killed after {GRACE_S:g} s," if is_killed else ""


def _failing_share(attribution: Attribution, result: RunResult) -> list[Effect]:
    """Return the share of launches that fail in all versions, variants and lanes of a fault together: apart, few
    launches each seem to fail at rates of their own. Empty if their number is not known."""
    versions, known = list(order_of(attribution, result)), {cell_key(one.cell): one.verdict for one in result.cells}
    keys = [side_of(each.finding, versions[at]) for each in attribution.episodes for at in each.span]
    cells = [known[key] for key in keys if key in known]
    failed, launches = sum(each.failed for each in cells), sum(each.at_risk for each in cells)
    return [Effect(value=failed / launches, unit="failures")] if failed else []


def _instead(found: Sequence[Finding], result: RunResult) -> str:
    """Return `-137 instead of -55`, the figures of values whose change has no ratio; "" if they are not known, or not
    those of all rows."""
    cells = {cell_key(entry.cell): entry.verdict for entry in result.cells}
    told = set[str]()
    for one in (each for each in found if each.verdict in ("value", "late")):
        sides = [cells.get(side_of(one, name)) for name in (one.before or "", one.after)]
        figures = [None if side is None else side.of(one.metric).value for side in sides]
        old, new = ("" if value is None else amounts.general(value, 4) for value in figures)
        told.add(f"{new} instead of {old}" if old and new and old != new else "")
    return told.pop() if len(told) == 1 else ""


def sentence(attribution: Attribution, result: RunResult) -> str:
    """Return a fault's sentence: `signal leaks 24 KiB/step since 22.12, on both cards; not the RTX 4090's fault.`"""
    layer = f"layer: {plain(attribution.layer)}" if attribution.layer else ""
    results = {"run_time": "the run takes {}", "memory": "its memory grows by {}"}
    sized = ((size_of_result(metric, attribution, result), text) for metric, text in results.items())
    told = (clause(attribution, result), *(text.format(size) for size, text in sized if size))
    return f"{'; '.join(filter(None, (*told, cause_text(attribution, result), layer)))}."


def size_of_result(metric: Metric, attribution: Attribution, result: RunResult) -> str:
    """Return by how much this metric changes as a consequence of the fault: `12 % longer`; "" if it does not."""
    begins = {side_of(each.finding, each.finding.after) for each in attribution.episodes}
    effects = [
        one.effect
        for one in result.findings
        if one.metric == metric
        and one.consequence_of == attribution.metric
        and one.kind != "first_fixed"
        and one.effect is not None
        and side_of(one, one.after) in begins
    ]
    return sizes(effects, metric=metric)


# ---------------------------------------------------------------- which fault comes first


def worst_first(result: RunResult) -> list[Attribution]:
    """Return the attributions in order of severity: confirmed faults first, lasting ones before fixed ones, then in the
    order of the signals (failures, growth, all levels, values), then the largest change first.
    """
    return sorted(result.attribution, key=_severity)


def _severity(attribution: Attribution) -> tuple[bool, bool, int, float]:
    found = [episode.finding for episode in attribution.episodes]
    metric = LEVELS[0] if found[0].metric in LEVELS else found[0].metric
    rank = 1 if found[0].verdict == "nan" else 2 * [*SIGNALS, metric].index(metric)
    is_fixed = all(episode.ends is not None for episode in attribution.episodes)
    return not any(finding.confirmed for finding in found), is_fixed, rank, -max(map(magnitude, found))


def numbered(result: RunResult) -> list[Finding]:
    """Return the findings in the order of their numbers, which start at 1: first one finding for each fault, worst
    fault first, as in the reports; then the remaining findings.
    """
    known = set(result.findings)
    telling = (telling_of(attribution).finding for attribution in worst_first(result))
    leads = dict.fromkeys(finding for finding in telling if finding in known)
    by_place = ordered(replace(result, findings=(*leads, *ordered(result))))  # the order survives a reload
    return list(dict.fromkeys([*leads, *by_place]))


def telling_of(attribution: Attribution) -> Episode:
    """Return the episode that represents the attribution: among those with a known beginning, if any, the one with the
    largest effect.
    """

    def weight(episode: Episode) -> tuple[bool, float]:
        effect = episode.finding.effect
        return episode.begins is not None, 0.0 if effect is None else effect.value

    return max(attribution.episodes, key=weight)


def order_of(attribution: Attribution, result: RunResult) -> Order:
    """Return the position of each version in the attribution's series, 0 for the oldest."""
    row = next(row for row in result.plan.rows if row.series.name == attribution.series)
    return {cell.image.version: place for place, cell in enumerate(row.cells)}


# ---------------------------------------------------------------- what, and how much


def _subject(attribution: Attribution, result: RunResult) -> str:
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
    is_only = sum(attribution.series == own or attribution.scenario == other for own, other in pairs) == 1
    return name if is_only and not of_images else f"{name}: {scenario}"


def predicate(same: Sequence[Finding], size: str, *, gives: str = "returns") -> str:
    """Return the predicate of findings of one sign, with their common size: `leaks 7.8 KiB/step`. `gives`: what the
    scenario does with its numbers.
    """
    finding, signal, scenario = same[0], signal_of(same[0].metric), same[0].variant.scenario
    if finding.metric == "outcome":
        known = (finding_words.SYMPTOMS.get(finding.verdict) for finding in same)
        said = " or ".join(dict.fromkeys((symptom and symptom.does) or "fails" for symptom in known))
        return f"{said}{f' in {size}' if size else ''}"
    does = finding_words.SYMPTOMS[finding.verdict].does if finding.verdict in finding_words.SYMPTOMS else ""
    if finding.verdict == "slowdown":
        return scenario.in_words(does, finding.metric)
    if finding.metric == "memory" and finding.effect is not None and finding.effect.unit.endswith("/s"):
        return f"grows by {size} while it runs"
    if signal.kind == "value":
        name = plain(signal.title)
        if does or not size:
            return (does or "{gives} another `{name}`").format(gives=gives, name=name)
        return f"`{name}` is {size}{' at the end' if finding.verdict == 'late' else ''}"
    return scenario.in_words(signal_words.verb(signal, size), finding.metric)


def per_of(attribution: Attribution, result: RunResult) -> Per:
    """Return what the rates of a fault are counted by: steps, printed lines or samples."""
    return signal_words.per_of(each.verdict for each in result.cells if each.cell.variant in attribution.variants)


def gives(attribution: Attribution, result: RunResult) -> str:
    """Return what the scenario does with its numbers: `returns`, `logs` or `prints` them."""
    scenario = attribution.variants[0].scenario
    if scenario.command or per_of(attribution, result) not in ("step", "request"):
        return "prints"
    return "logs" if scenario.is_program else "returns"


def slow_launches(cells: Iterable[CellResult]) -> tuple[int, int]:
    """Return how many launches of these cells are in a slow mode, and of how many."""
    counts = [entry.verdict.of("step_time").slow or (0, 0) for entry in cells]
    return sum(slow for slow, _ in counts), sum(launches for _, launches in counts)


def is_warm(attribution: Attribution, result: RunResult) -> bool:
    """Return whether all launches that show the fault began with a warm cache. A version that fails in the launch that
    fills its cache fails with a cold one, too."""
    trials = [trial for entry in _bad_cells(attribution, result) for trial in entry.trials if trial.measured]
    if attribution.metric == "outcome":
        trials = [trial for trial in trials if not trial.ended_well]
    return bool(trials) and all(trial.has_warm_cache for trial in trials)


def _bad_cells(attribution: Attribution, result: RunResult) -> list[CellResult]:
    """Return the cells of the bad versions, in the variants and on the lanes that have the fault."""
    return [
        entry
        for entry in result.cells
        if entry.cell.image.series == attribution.series
        and entry.cell.variant in attribution.variants
        and entry.cell.lane in attribution.bad_lanes
        and entry.cell.image.version in attribution.images
    ]


def _rank(attribution: Attribution, result: RunResult) -> int | None:
    """Return the number of the rank that shows the fault in most launches of the bad versions; None if none does."""
    finding = attribution.episodes[0].finding
    found: Counter[int | None] = Counter()
    for entry in _bad_cells(attribution, result):
        found.update(_telling_rank(finding, trial) for trial in entry.trials if trial.facts.ranks)
    number, count = found.most_common(1)[0] if found else (None, 0)
    return number if 2 * count > found.total() else None


def _telling_rank(finding: Finding, trial: Trial) -> int | None:
    """Return the number of the rank that alone shows the finding in a launch; None if there is none."""
    if signal_of(finding.metric).kind == "value":
        metric = signal_of(finding.metric).title
        numbers = [rank.rank for rank in trial.facts.ranks if metric in rank.not_finite]
        return numbers[0] if finding.verdict == "nan" and len(numbers) == 1 else None
    if finding.metric not in ("memory", "rank_spread"):
        return None
    is_memory = finding.metric == "memory"
    figures = [(rank.grown_kib if is_memory else rank.own_s, rank.rank) for rank in trial.facts.ranks]
    ranked = sorted((figure, number) for figure, number in figures if figure is not None)[-2:]
    if len(ranked) < 2 or (is_memory and ranked[1][0] < _DOUBLE * ranked[0][0]):
        return None
    return ranked[1][1]


def size_of(episode: Episode) -> Effect | None:
    """Return the size of the fault; None if unknown. If only its end is known, the ratio of the fix is inverted."""
    effect = episode.finding.effect
    if effect is None or episode.begins is not None or effect.unit != "ratio" or effect.value <= 0:
        return effect
    return replace(effect, value=1 / effect.value, ci=None)


def sizes(effects: Sequence[Effect], *, metric: Metric) -> str:
    """Return the size of one fault over several lanes and variants, as one figure or a range, smallest to largest.

    If the confidence intervals of the smallest and largest rate overlap, return the first figure alone. Of effects in
    several units, those in the unit of the first count.
    """
    if not effects:
        return ""
    effects = [effect for effect in effects if effect.unit == effects[0].unit]
    least, most = min(effects, key=lambda effect: effect.value), max(effects, key=lambda effect: effect.value)
    meet = least.ci is not None and most.ci is not None and least.ci[1] >= most.ci[0]
    if meet and "/" in most.unit:
        return size(effects[0], metric=metric)
    low, high = (size(effect, metric=metric) for effect in (least, most))
    return high if low == high else f"{amounts.without_unit(low, high)} to {high or 'all launches'}"


def size(effect: Effect, *, metric: Metric) -> str:
    """Return an effect's size: `7.8 KiB/step`, `50 % longer`, `5.62 times as long`, `3 s longer`, `38 % of launches`;
    "" for all launches.
    """
    signal = signal_of(metric)
    place = "higher" if signal.kind == "value" else signal_words.place_in(signal.verb)
    more, less, times = _MEASURES.get(place, _MEASURES["more"])
    if effect.unit == "ratio" and effect.value >= _DOUBLE:
        return f"{amounts.number(effect.value)} times {times}"
    if effect.unit == "ratio":
        return f"{amounts.number(100 * abs(effect.value - 1))} % {more if effect.value >= 1 else less}"
    if effect.unit == "failures" and effect.value >= 1:
        return ""
    is_rough = effect.unit == "failures" or "/" in effect.unit
    form = (lambda value: amounts.rough(value).removesuffix(".0")) if is_rough else amounts.number
    text = amounts.in_unit(effect.value, effect.unit, form=form)
    return f"{text} {more}" if signal.kind == "level" else text


# ---------------------------------------------------------------- since when, and where


def _since_and_where(attribution: Attribution, result: RunResult) -> tuple[str, str]:
    names, order = LaneNames(attribution, result), order_of(attribution, result)
    versions, lanes, mild = list(order), on_lanes(attribution), _mostly_fixed(attribution, result, order)
    together = _common(list(lanes.values()))
    if together is not None:
        return _since(together, attribution, versions, mild), names.on(attribution.bad_lanes)
    apart = grouped((tuple(each.when for each in several), lane) for lane, several in lanes.items())

    def vagueness(alike: Sequence[Lane]) -> tuple[bool, int]:
        first_seen = lanes[alike[0]][0]
        last, first = first_seen.since or (-1, first_seen.seen)
        return last < 0, first - last  # with a last good version first, then those that span fewest versions

    clauses = [
        f"{_since(lanes[alike[0]], attribution, versions, mild)} on {names.all_of(alike)}"
        for alike in sorted(apart.values(), key=vagueness)
    ]
    return " and ".join(clauses), ""


def _common(lanes: Sequence[tuple[Episode, ...]]) -> tuple[Episode, ...] | None:
    """Return the episodes of all lanes as one each; None if the lanes must have changed at different versions."""
    if len({len(several) for several in lanes}) > 1:
        return None
    found = [met(same) for same in zip(*lanes, strict=True)]
    known = [each for each in found if each is not None]
    return tuple(known) if len(known) == len(found) else None


def _mostly_fixed(attribution: Attribution, result: RunResult, order: Order) -> str:
    """Return the version from which on the fault is mostly repaired in all rows; "" if there is none."""
    rows = grouped((row_key(entry.cell), (entry.cell.image.version, entry.verdict)) for entry in result.cells)
    found = {
        mostly_fixed(episode, dict(rows.get(row_key(episode.finding), ())), order) for episode in attribution.episodes
    }
    (place_in_order, *others) = found
    return "" if others or place_in_order is None else version(list(order)[place_in_order])


def _since(several: Sequence[Episode], attribution: Attribution, versions: Sequence[str], mild: str) -> str:
    only = several[0]
    if len(several) == len(attribution.images) == 1 and only.since is not None and only.since[0] < 0:
        image = attribution.images[0]
        at_least = " at least" if only.until is None and image != versions[-1] else ""
        return f"in {version(image)}{at_least}{_fixed(only, versions, mild)}"
    return " and ".join(since(each, versions, mild=mild if len(several) == 1 else "") for each in several)


def since(episode: Episode, versions: Sequence[str], *, mild: str = "") -> str:
    """Return when an episode begins and ends, as far as known: `since 6.3.0 (fixed in 6.3.2, most of it in 6.3.1)`.

    `versions` are all versions of the series, oldest first; `mild` is the one that repairs most of it, if any.
    """
    end = _fixed(episode, versions, mild)
    if episode.since is None:
        return f"up to {version(versions[episode.seen])}{end}"
    last, first = episode.since
    name = version(versions[first])
    if last < 0:
        return f"in every version from {name}, the oldest{' that can be judged' if first else ''}{end}"
    if episode.is_gradual:
        return f"gradually from {version(versions[last])} to {name}{end}"
    if first - last > 1:
        return f"since a version after {version(versions[last])}, {name} at the latest{end}"
    return f"since {name}{end}"


def _fixed(episode: Episode, versions: Sequence[str], mild: str) -> str:
    """Return the end of an episode: ` (fixed in 6.3.2)`; "" if no version fixes it."""
    if episode.until is None:
        return f" (most of it fixed in {mild})" if mild else ""
    last, first = episode.until
    name = version(versions[first])
    where = name if first - last == 1 else f"a version after {version(versions[last])}, {name} at the latest"
    told = (where, "where that is known" if episode.is_open else "", f"most of it in {mild}" if mild else "")
    return f" (fixed in {', '.join(filter(None, told))})"


# ---------------------------------------------------------------- with which params


def params_clause(attribution: Attribution) -> str:
    """Return the rule as part of a sentence: `when input is random or variable`; "" if there is no rule."""
    rule = attribution.rule
    if attribution.unruly:
        return f"in {amounts.count(len(attribution.variants), 'variant')}, with no simple rule"
    if rule is None:
        return ""
    many = rule.bad
    if not rule.conditions and rule.never_run:
        return f"in every variant that can tell ({many} of {many + len(rule.never_run)})"
    if not rule.conditions:
        return f"in {amounts.every(many, 'variant')}"
    joined = (", or " if rule.any_of else " and ").join(map(_spoken, rule.conditions))
    also = f" (or when {' and '.join(map(_spoken, rule.also[0]))}: the two always occur together)" if rule.also else ""
    odd = f" ({amounts.count(len(rule.exceptions), 'exception')})" if rule.exceptions else ""
    return f"when {joined}{also}{odd}"


def rule_text(rule: Rule | None) -> str | None:
    """Return the rule as a condition: `input in {random, variable}`; None without a rule or conditions."""
    if rule is None or not rule.conditions:
        return None
    told = []
    for condition in rule.conditions:
        values = [plain(written(value)) for value in condition.values]
        chosen = f"= {values[0]}" if len(values) == 1 else "in {" + ", ".join(values) + "}"
        told.append(f"{plain(condition.param)} {chosen}")
    return (" or " if rule.any_of else " and ").join(told)


def rule_evidence(rule: Rule) -> str:
    """Return the evidence for a rule: `op makes no difference; 8 variants bad, 16 good`."""
    parts = []
    if rule.indifferent:
        names = together([plain(name) for name in rule.indifferent])
        parts.append(f"{names} {'makes' if len(rule.indifferent) == 1 else 'make'} no difference")
    parts.append(f"{amounts.count(rule.bad, 'variant')} bad, {rule.good} good")
    if rule.otherwise:
        parts.append(f"{rule.otherwise} bad there with another fault")
    if rule.exceptions:
        parts.append(f"exceptions: {_listed(rule.exceptions)}")
    if rule.never_run:
        verb = "does" if len(rule.never_run) == 1 else "do"
        parts.append(f"{len(rule.never_run)} {verb} not rule it out: {_listed(rule.never_run)}")
    return "; ".join(parts)


def _spoken(condition: ParamCondition) -> str:
    values = [plain(written(value)) for value in condition.values]
    return f"{plain(condition.param)} is {together(values, word='or')}"


def _listed(variants: Sequence[Variant]) -> str:
    return "; ".join(at_most([params_text(variant) for variant in variants], 3))
