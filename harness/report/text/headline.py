"""Writes the sentence at the top of every report, and names the versions that seem bad before a finding does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from harness import amounts
from harness.model import BAD, FAILURES, GOOD, NOTABLE, UNSURE, CellResult, Observation, RunResult, grouped, signal_of
from harness.model.result import SAME_SWEEP
from harness.report.text import fault_sentences, signal_words
from harness.report.text.harmless_text import plain, shortened, version, without_places
from harness.report.text.names import (
    CellKey,
    at_most,
    cell_key,
    lane_text,
    notable_cells,
    params_text,
    row_key,
    seen_in,
    side_of,
    some_of,
    together,
    variant_text,
    versions_of,
)
from harness.report.text.signal_words import is_needless, looks_bad_because, tone

_MOST = 3


def sentence(result: RunResult) -> str:
    """Return what the run found and what it could not decide, in one line of plain English."""
    return " ".join(lines(result))


def lines(result: RunResult) -> list[str]:
    """Return the sentences of the headline: what became worse since a machine changed, and those on the images."""
    since, told = [f"{text[:1].upper()}{text[1:]}." for text in result.since], _lines(result)
    return [*since, *(text.replace("Nothing bad", "Nothing else bad", 1) if since else text for text in told)]


def _lines(result: RunResult) -> list[str]:
    """Return a sentence for each fault, what to look at, and then what could not be decided."""
    if result.plan.rehearsal:
        return ["Only the first launches of `harness try` are here, and the versions were not compared."]
    looks = [f"{text}." for text in at_most(to_look_at(result), _MOST)]
    if looks and (result.verdict == "ok" or (result.verdict == "inconclusive" and not _open(result))):
        good, notable = [each for each in result.cells if tone(each.verdict.verdict) == "good"], notable_cells(result)
        other = sum(cell_key(entry.cell) not in notable for entry in good)
        rest = f"other {amounts.count(other, 'cell')} are" if other > 1 else "other cell is"
        return [*looks, *([f"The {rest} good."] if other else [])]
    if result.verdict not in ("regression", "interrupted", "running") or not result.attribution:
        told = [*looks, _SENTENCES[result.verdict](result)]
        return [*told, *_changed(result), *_better(result)] if result.verdict in ("ok", "inconclusive") else told
    worst, most = fault_sentences.worst_first(result), fault_sentences.MOST_AT_THE_TOP
    told = [fault_sentences.sentence(each, result) for each in worst[:most]]
    told += [f"And {amounts.count(len(worst) - most, 'further fault')} below."] if len(worst) > most else []
    if result.verdict != "regression":
        return [*told, *looks, _SENTENCES[result.verdict](result)]
    failed = seems_bad(result, lambda entry: entry.verdict.failed > 0)
    return [*told, *looks, *([f"Not confirmed: {'; '.join(failed)}."] if failed else [])]


def to_look_at(result: RunResult) -> list[str]:
    """Return a clause for each new line of output that nobody should miss, errors first: `six 1.2 prints a new error:
    ValueError: …`. Those of a version that fails or returns NaN are left out, because its finding quotes them.
    """
    begins = {side_of(one, one.after) for one in result.findings if one.metric == "outcome" or one.verdict == "nan"}
    gone = {side_of(one, one.after) for one in result.findings if one.verdict == "vanished"}  # it was on the last line
    notable, versions = [each for each in result.observations if each.signal in NOTABLE], versions_of(result)
    errors = [side_of(each, each.after) for each in notable if each.signal == NOTABLE[0]]
    told: list[tuple[tuple[str, str], Observation]] = []
    for each in sorted(notable, key=lambda one: NOTABLE.index(one.signal)):
        place = side_of(each, each.after)
        is_named = each.text.startswith("Traceback ") and errors.count(place) > 1  # its last line says more
        if place not in begins and not is_named and not (each.signal == "other_end" and place in gone):
            who = _who_shows(each, versions[each.series])
            told.append(((who, shortened(each.text.rstrip(":"), most=160)), each))
    return [f"{who}{_where(alike, result)}: {text}" for (who, text), alike in grouped(told).items()]


def _changed(result: RunResult) -> list[str]:
    """Return a sentence on the results that changed, though within their limits: the first, and how many more."""
    changed = [one for one in result.observations if signal_of(one.signal).kind == "value"]
    versions = versions_of(result)
    sides = (f"{plain(one.series)} {seen_in(one, versions[one.series])}".rstrip() for one in changed)
    told = dict.fromkeys(f"{side}: {shortened(one.text, most=160)}" for side, one in zip(sides, changed, strict=True))
    return [f"But results changed: {'; '.join(at_most(list(told), 1, rest='and {} more'))}."] if told else []


def is_better(each: Observation) -> bool:
    """Return whether it is of a level that became better; a level of two lanes did not change."""
    return signal_of(each.signal).kind == "level" and each.before != each.after


def _better(result: RunResult) -> list[str]:
    """Return a sentence on the levels that became better: the first, in how many rows, and how many more."""
    versions, texts = versions_of(result), dict[str, list[str]]()
    for one in filter(is_better, result.observations):
        what = f"{plain(one.series)} {seen_in(one, versions[one.series])}: {signal_of(one.signal).title}"
        texts.setdefault(what, []).append(f"{what} {one.text}")
    told = [_in_rows(own) for own in texts.values()]
    return [f"Better: {'; '.join(at_most(told, 1, rest='and {} more'))}."] if told else []


def _in_rows(texts: Sequence[str]) -> str:
    """Return the text of the first row, and in how many more there is one."""
    return texts[0] + (f" (and in {amounts.count(len(texts) - 1, 'more row')})" if len(texts) > 1 else "")


def _where(alike: Sequence[Observation], result: RunResult) -> str:
    """Return ` in load` if only this scenario shows it, and ` with op=put` if each scenario that shows it has measured
    variants that do not."""
    shown = dict.fromkeys(each.variant for each in alike)
    series, scenarios = {each.series for each in alike}, {each.scenario.name for each in shown}
    ran = {entry.cell.variant for entry in result.cells if entry.verdict.trials and entry.cell.image.series in series}
    others = {one.scenario.name for one in ran - shown.keys()}
    some = f" in {some_of(list(map(plain, sorted(scenarios))), _MOST)}" if others - scenarios else ""
    return f"{some} with {some_of(list(map(params_text, shown)), _MOST)}" if scenarios <= others else some


def _who_shows(each: Observation, versions: Sequence[str]) -> str:
    """Return `six 1.2 prints a new error`, `six prints a new error since 1.2` if later versions do so, too, or `six
    gives another result` on another lane, whatever the version."""
    series, verb = plain(each.series), signal_words.verb(signal_of(each.signal))
    if each.before != each.after and each.last in (None, each.after) and not each.untestable:
        return f"{series} {version(each.after)} {verb}"
    return f"{series} {verb} {seen_in(each, versions)}".rstrip()


def _cells(result: RunResult, some: int) -> str:
    """Return `2 of 12 cells`."""
    return f"{some:,} of {amounts.count(len(result.cells), 'cell')}"


def _bad_cells(result: RunResult) -> str:
    bad = [entry.verdict.verdict for entry in result.cells if entry.verdict.verdict in BAD]
    kinds = [f"{bad.count(name)} {name}" for name in dict.fromkeys(bad)]
    return f"{_cells(result, len(bad))} bad ({', '.join(kinds)})"


def _infrastructure(result: RunResult) -> str:
    hosts = [plain(state.host.name) for state in result.hosts if state.problem is not None]
    where = f" ({together(hosts)} could not be used)" if hosts else ""
    lost = [entry for entry in result.cells if entry.problem or _is_untested(entry)]
    if not any(entry.verdict.trials for entry in result.cells):
        if not lost and not hosts:
            every, are = amounts.every(len(result.cells), "cell"), "is" if len(result.cells) == 1 else "are"
            return f"Nothing was run: {every} {are} excluded or incompatible with the host."
        return f"Nothing could be measured: {_cells(result, len(lost))} are untested{where}."
    how = "" if all(map(_is_untested, lost)) else " as planned"
    told = f"{_cells(result, len(lost))} could not be measured{how}{where}"
    seen = seems_bad(result)
    return _unconfirmed(seen, told) if seen else f"Nothing bad in what ran, but {told}."


def _is_untested(entry: CellResult) -> bool:
    """Return whether the cell should have been measured but was not."""
    return entry.verdict.verdict == "untested" and entry.cell.excluded is None and not is_needless(entry)


def _open(result: RunResult) -> bool:
    """Return whether a cell or signal of an inconclusive run is open, rather than good with an error in its output."""
    states = {entry.verdict.state for entry in result.cells if not entry.cell.excluded}
    return "unsure" in states or any(entry.stopped for entry in result.cells)


def _all_failed(failed: Sequence[CellResult], result: RunResult) -> str:
    """Return how the versions fail, none of which can be compared: each reason once, with its versions. What
    differs by places only is one reason, told without them."""
    told = grouped(((plain(each.cell.image.series), without_places(each.verdict.why)), each) for each in failed)
    ways = []
    for (name, why), own in told.items():
        versions = list(dict.fromkeys(version(each.cell.image.version) for each in own))
        whole = {each.verdict.why for each in own}
        said = shortened(whole.pop() if len(whole) == 1 else why, most=120)
        ways.append(f"{name} {some_of(versions, _MOST)}: {said}")
    how = "alike" if len({why for _, why in told}) == 1 else "though not alike"
    which = "every version" if len(failed) == len(result.cells) else "every version that ran"
    return f"Nothing could be compared: {which} fails, {how}. {'; '.join(at_most(ways, _MOST))}."


def _inconclusive(result: RunResult) -> str:
    if failed := [entry for entry in result.cells if _is_untested(entry) and entry.verdict.trials]:
        return _all_failed(failed, result)
    unsure = [entry.verdict.verdict for entry in result.cells if entry.verdict.verdict in UNSURE]
    kinds = [f"{unsure.count(name)} {name}" for name in ("suspect", "inconclusive") if name in unsure]
    reasons = {plain(entry.verdict.why) for entry in result.cells if entry.verdict.verdict in UNSURE}
    alike = f": {reasons.pop()}" if len(reasons) == 1 < len(unsure) and "" not in reasons else ""
    early = sum(entry.verdict.provisional for entry in result.cells)
    stopped = [entry for entry in result.cells if entry.stopped]
    unsaid = sum(not entry.verdict.trials for entry in stopped)
    why = next((entry.stopped for entry in stopped), "")
    why = f"{why[:1].upper()}{why[1:]}"
    seen = seems_bad(result)
    told = [
        f"{_cells(result, len(unsure))} could not be decided ({', '.join(kinds)}){alike}" if unsure else "",
        f"{_cells(result, early)} had too few launches to be called good" if early else "",
        f"{_cells(result, unsaid)} had no launch" if unsaid else "",
        "" if why and seen else _blind(result),
    ]
    rest = "; ".join(filter(None, told))
    if seen:
        return _unconfirmed(seen, rest, why=why)
    else_ = " else" if to_look_at(result) else ""
    return f"{why}{'. ' if why else ''}Nothing{else_} bad found, but {rest}."


def _unconfirmed(seen: Sequence[str], rest: str, *, why: str = "") -> str:
    """Return the headline of a run in which something looks bad that is not confirmed: it comes before all else."""
    more = [f"{why or 'Also'}: {rest}"] if rest else list(filter(None, [why]))
    return " ".join(f"{text}." for text in (f"Not confirmed: {'; '.join(seen)}", *more))


def _blind(result: RunResult) -> str:
    good = [entry.verdict for entry in result.cells if entry.verdict.verdict in GOOD and entry.verdict.blind]
    titles = dict.fromkeys(signal_words.shown_signal(name).title for verdict in good for name in verdict.blind)
    some = f"could not be measured as finely as the limit requires in {amounts.count(len(good), 'cell')}"
    return f"{some_of(list(titles), _MOST)} {some}" if good else ""


def _unfinished(result: RunResult, *, begins: str, ends: str) -> str:
    done = sum(entry.verdict.trials > 0 for entry in result.cells)
    early = sum(entry.verdict.provisional for entry in result.cells)
    sure = f", {early} of them in too few launches to be called good" if early else ""
    told = f"{begins} {_cells(result, done)} measured{sure}{ends}."
    is_bad = not result.attribution and any(entry.verdict.verdict in BAD for entry in result.cells)
    seen = [*([_bad_cells(result)] if is_bad else []), *seems_bad(result)]
    return f"{told} So far: {'; '.join(seen)}." if seen else told


def _ok(result: RunResult) -> str:
    tones = [tone(entry.verdict.verdict) for entry in result.cells]
    cells, good = amounts.count(len(tones), "cell"), tones.count("good")
    if tones and "none" not in tones:
        return f"Nothing bad: {amounts.every(len(tones), 'cell')} {'are' if len(tones) > 1 else 'is'} good."
    if all(is_needless(entry) for entry in result.cells if tone(entry.verdict.verdict) == "none"):
        return f"Nothing bad in the {good} of {cells} that were run; the other {len(tones) - good} were not."
    return f"Nothing bad: {good} of {cells} good, the rest not measured."


_SENTENCES: Mapping[str, Callable[[RunResult], str]] = {
    "regression": lambda result: f"{_bad_cells(result)}, but the history does not show which version began it.",
    "infrastructure": _infrastructure,
    "inconclusive": _inconclusive,
    "interrupted": partial(_unfinished, begins="Interrupted with", ends=f"; {SAME_SWEEP}"),
    "ok": _ok,
    "running": partial(_unfinished, begins="Still running, with", ends=""),
}


# ---------------------------------------------------------------- seems bad first


def seems_bad(result: RunResult, looks_bad: Callable[[CellResult], bool] | None = None) -> list[str]:
    """Return a clause for each version that is the first to seem bad in rows without a finding, or to fail outside of
    its row's faults, most rows first: `six 1.1 seems bad first (provisional; parse, local; 1 launch): …`. Without
    `first`, an older version is not measured yet.
    """
    found, failing = set(map(row_key, result.findings)), _failing(result)
    same: dict[tuple[str, str], list[str]] = {}
    for row, cells in grouped((row_key(entry.cell), entry) for entry in result.cells).items():
        seems = (lambda entry: cell_key(entry.cell) in failing) if row in found else (looks_bad or _looks_bad)
        bad = [number for number, entry in enumerate(cells) if seems(entry)]
        number = next((number for number in bad if not _may_be_none(cells[number])), next(iter(bad), None))
        if number is not None:
            image = cells[number].cell.image
            same.setdefault((image.series, image.version), []).append(_seems_bad(cells, number))
    told = [_in_rows(texts) for texts in sorted(same.values(), key=lambda texts: -len(texts))]
    return at_most(told, _MOST, rest="{} more also seem bad")


def _failing(result: RunResult) -> set[CellKey]:
    """Return the cells in which launches agree on a failure that is in no fault; failures of a baseline are good."""
    asked = {row.series.name for row in result.plan.rows if row.series.baseline is None}
    cells = [entry for entry in result.cells if entry.cell.image.series in asked]
    failing = {cell_key(entry.cell) for entry in cells if FAILURES & set(entry.verdict.verdicts)}
    for fault in (each for each in result.attribution if each.metric == "outcome"):
        versions = list(fault_sentences.order_of(fault, result))
        for each in fault.episodes:  # with the versions in which it may have begun
            first = 0 if each.since is None else each.since[0] + 1
            failing -= {side_of(each.finding, name) for name in versions[first : each.span.stop]}
    return failing


def _looks_bad(entry: CellResult) -> bool:
    verdict = entry.verdict
    if BAD & set(verdict.verdicts) or verdict.failed:
        return True
    if verdict.verdict == "suspect" and verdict.trials:
        return True
    return verdict.verdict in GOOD and any(signal.seen in ("suspect", "bad") for signal in verdict.signals.values())


def _may_be_none(entry: CellResult) -> bool:
    """Return whether all that is suspected is a growth that may be zero or below the limit."""
    memory = entry.verdict.of("memory")
    return entry.verdict.verdict == "suspect" and memory.ci is not None and memory.ci[0] <= (memory.limit or 0.0)


def _seems_bad(cells: Sequence[CellResult], number: int) -> str:
    entry = cells[number]
    before = next((other for other in reversed(cells[:number]) if other.cell.excluded is None), None)
    measured = [other.verdict.verdict for other in cells if other.verdict.trials]
    seems = "may be bad" if _may_be_none(entry) else "seems bad"
    if len(measured) > 1 and set(measured) == {"suspect"}:
        seems += ", like all other versions"
    elif not _may_be_none(entry) and before is not None and before.verdict.verdict in GOOD:
        seems += " first"
    cell, launches = entry.cell, f"; {amounts.count(entry.verdict.trials, 'launch')}"
    by = "" if entry.verdict.verdict in GOOD else launches
    where = f"provisional; {variant_text(cell.variant)}, {lane_text(cell.lane)}{by}"
    name = f"{plain(cell.image.series)} {version(cell.image.version)}"
    return f"{name} {seems} ({where}): {looks_bad_because(entry, before)}"
