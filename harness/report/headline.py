"""The sentence at the top of every report."""

from __future__ import annotations

from collections.abc import Callable

from harness.model import CellResult, RunResult
from harness.report import blame, figures, words
from harness.report.clean import plain
from harness.report.worth import is_needless


def sentence(result: RunResult) -> str:
    """What the run found, in one line of plain English; what is not known is said too."""
    return _SENTENCES[result.verdict](result)


def _regression(result: RunResult) -> str:
    if not result.attribution:
        return f"{_bad_cells(result)}, but the history does not say since which version."
    top = blame.worst_first(result)[: blame.MOST_AT_THE_TOP]
    rest = len(result.attribution) - len(top)
    more = f" And {figures.count(rest, 'further fault')} below." if rest > 0 else ""
    return f"{' '.join(blame.sentences(top, result))}{more}"


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
