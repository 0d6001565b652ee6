"""The sentence at the top of every report."""

from __future__ import annotations

from collections.abc import Callable

from harness.model import CellResult, RunResult
from harness.report import blame, figures, phrases, words
from harness.report.clean import plain
from harness.report.episodes import History, histories
from harness.report.worth import is_needless

_MOST_HISTORIES = 3


def sentence(result: RunResult) -> str:
    """What the run found, in one line of plain English; what is not known is said too."""
    return _SENTENCES[result.verdict](result)


def _regression(result: RunResult) -> str:
    if not result.attribution:
        return _untold(result)
    rest = len(result.attribution) - blame.MOST_AT_THE_TOP
    more = f" And {figures.count(rest, 'further fault')} below." if rest > 0 else ""
    return f"{' '.join(blame.sentences(result.attribution[: blame.MOST_AT_THE_TOP], result))}{more}"


def _untold(result: RunResult) -> str:
    """Of a run that asks nobody whose fault it is."""
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
    if not any(cell.verdict.trials for cell in result.cells):
        return f"Nothing could be measured: {len(lost)} of {cells} are untested{where}."
    how = "" if all(_is_untested(cell) for cell in lost) else " as planned"
    return f"Nothing bad in what ran, but {len(lost)} of {cells} could not be measured{how}{where}."


def _is_untested(cell: CellResult) -> bool:
    """Whether it should have been measured and was not."""
    return cell.verdict.verdict == "untested" and cell.cell.excluded is None and not is_needless(cell)


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
    good = tones.count("good")
    if all(is_needless(cell) for cell in result.cells if words.tone(cell.verdict.verdict) == "none"):
        return f"Nothing bad in the {good} of {cells} that were run; the other {len(tones) - good} were not."
    if not good:
        return f"Nothing was run: of {cells}, all are excluded or cannot run there."
    return f"Nothing bad: {good} of {cells} good, the rest not measured."


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
    """`multidict leaks 7.8 KiB a step since 6.3.0 (fixed in 6.3.2), and 2.8 KiB a step since 6.5.0 (…)`."""
    return f"{plain(history.findings[0].series)} {phrases.story([history], result)}{_where(history, result)}"


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
