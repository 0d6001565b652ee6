"""The sentence at the top of every report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.model import CellResult, Effect, Finding, RunResult
from harness.report import figures, words
from harness.report.clean import plain
from harness.report.episodes import Episode, History, histories

_MOST_HISTORIES = 3


def sentence(result: RunResult) -> str:
    """What the run found, in one line of plain English; what is not known is said too."""
    return _SENTENCES[result.verdict](result)


def _regression(result: RunResult) -> str:
    stories = [_story(history, result) for history in histories(result)]
    if not stories:
        return f"{_bad_cells(result)}, but the history does not say since which version."
    shown = "; ".join(stories[:_MOST_HISTORIES])
    rest = len(stories) - _MOST_HISTORIES
    return f"{shown}; and {figures.count(rest, 'further change')} below." if rest > 0 else f"{shown}."


def _infrastructure(result: RunResult) -> str:
    hosts = [plain(state.host.name) for state in result.hosts if state.problem is not None]
    where = f" ({words.together(hosts)} could not be used)" if hosts else ""
    lost = [cell for cell in result.cells if cell.problem or _is_untested(cell)]
    cells = figures.count(len(result.cells), "cell")
    how = "" if all(_is_untested(cell) for cell in lost) else " as planned"
    return f"Nothing bad in what ran, but {len(lost)} of {cells} could not be measured{how}{where}."


def _is_untested(cell: CellResult) -> bool:
    """Whether it should have been measured and was not."""
    return cell.verdict.verdict == "untested" and cell.cell.excluded is None


def _inconclusive(result: RunResult) -> str:
    unsure = [cell.verdict.verdict for cell in result.cells if cell.verdict.verdict in ("suspect", "inconclusive")]
    kinds = [f"{unsure.count(name)} {name}" for name in ("suspect", "inconclusive") if name in unsure]
    cells = figures.count(len(result.cells), "cell")
    return f"Nothing bad found, but {len(unsure)} of {cells} could not be decided ({', '.join(kinds)})."


def _interrupted(result: RunResult) -> str:
    done = sum(cell.verdict.trials > 0 for cell in result.cells)
    cells = figures.count(len(result.cells), "cell")
    return f"Interrupted with {done} of {cells} measured; the same sweep again goes on from here."


def _ok(result: RunResult) -> str:
    tones = [words.tone(cell.verdict.verdict) for cell in result.cells]
    cells = figures.count(len(tones), "cell")
    if tones and "none" not in tones:
        return f"Nothing bad: {'all ' if len(tones) > 1 else ''}{cells} {'are' if len(tones) > 1 else 'is'} good."
    return f"Nothing bad: {tones.count('good')} of {cells} good, the rest not measured."


_SENTENCES: dict[str, Callable[[RunResult], str]] = {
    "regression": _regression,
    "infrastructure": _infrastructure,
    "inconclusive": _inconclusive,
    "interrupted": _interrupted,
    "ok": _ok,
}


def _bad_cells(result: RunResult) -> str:
    bad = [cell.verdict.verdict for cell in result.cells if words.tone(cell.verdict.verdict) == "bad"]
    kinds = [f"{bad.count(name)} {name}" for name in dict.fromkeys(bad)]
    return f"{len(bad)} of {figures.count(len(result.cells), 'cell')} bad ({', '.join(kinds)})"


# ---------------------------------------------------------------- one history


def _story(history: History, result: RunResult) -> str:
    """`multidict leaks 7.84 KiB a step since 6.3.0 (fixed in 6.3.2), and 2.82 KiB a step since 6.5.0 (…)`."""
    by_number = list(zip(*history.episodes, strict=True))
    first = [episode.finding for episode in by_number[0]]
    parts = [f"{_verb(first)} {_when(by_number[0][0])}"]
    for same in by_number[1:]:
        parts.append(f"{_again([episode.finding for episode in same])} {_when(same[0])}")
    return f"{plain(first[0].series)} {', and '.join(parts)}{_where(history, result)}"


def _when(episode: Episode) -> str:
    begins, ends = episode.begins, episode.ends
    if begins is None:
        assert ends is not None, "an episode has a begin or an end"
        return f"before {plain(ends.after)} (fixed there)"
    fixed = f" (fixed in {plain(ends.after)})" if ends is not None else ""
    if begins.kind == "bad_from_start":
        oldest = "the oldest that can be judged" if begins.untestable else "the oldest"
        return f"in every version from {plain(begins.after)}, {oldest}{fixed}"
    if begins.untestable:
        return f"since a version after {plain(begins.before or '')}, {plain(begins.after)} at the latest{fixed}"
    return f"since {plain(begins.after)}{fixed}"


def _verb(same: Sequence[Finding]) -> str:
    finding, size = same[0], _sizes(same)
    if finding.verdict == "slowdown":
        return "gets slower step by step"
    if finding.metric == "step_time":
        return f"has slower steps{f' ({size})' if size else ''}"
    if finding.metric == "peak_memory":
        return f"needs more memory at its peak{f' ({size})' if size else ''}"
    if finding.verdict == "leak" or finding.metric == "memory":
        return f"leaks {size or 'memory'}"
    verbs = {"oom": "runs out of memory", "crash": "crashes", "hang": "hangs"}
    return verbs.get(finding.verdict, "fails")


def _again(same: Sequence[Finding]) -> str:
    if same[0].metric == "memory":
        return _sizes(same) or "again"
    return "again"


def _sizes(same: Sequence[Finding]) -> str:
    """The effects of the same finding in several places: one figure, or from the least to the most."""
    effects = [finding.effect for finding in same if finding.effect is not None]
    if not effects:
        return ""
    least, most = min(effects, key=lambda one: one.value), max(effects, key=lambda one: one.value)
    low, high = _size(least), _size(most)
    if low == high:
        return high
    unit = low.partition(" ")[2]
    return f"{low.partition(' ')[0] if unit and high.endswith(unit) else low} to {high}"


def _size(effect: Effect) -> str:
    text = figures.effect(Effect(value=effect.value, unit=effect.unit))
    return text.replace(" KiB/step", " KiB a step")


def _where(history: History, result: RunResult) -> str:
    """In how many variants, and on which lanes, where there is more than one to tell apart."""
    found = history.findings
    variants = {str(finding.variant): finding.variant for finding in found}
    all_variants = {str(block.variant) for block in result.plan.blocks if block.series.name == found[0].series}
    text = ""
    if len(variants) == 1 and len(all_variants) > 1:
        text = f", in {words.variant_text(found[0].variant)}"
    elif len(all_variants) > 1:
        text = f", in {len(variants)} of {len(all_variants)} variants"
    lanes = dict.fromkeys(words.lane_text(finding.lane) for finding in found)
    return f"{text}, on {words.together(list(lanes))}"
