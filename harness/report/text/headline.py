"""Writes the sentence at the top of every report."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

from harness.model import BAD, GOOD, UNSURE, Attribution, CellResult, RunResult
from harness.reasons import Remedy
from harness.report.text import numbers, seems_bad_first, signal_words, words
from harness.report.text.faults import blame
from harness.report.text.harmless_text import plain, version
from harness.report.text.sensitivity import is_needless
from harness.report.text.signal_words import shown_signal

_MOST_TITLES = 3


def sentence(result: RunResult) -> str:
    """Return what the run found and what it could not decide, in one line of plain English."""
    return _SENTENCES[result.verdict](result)


def _regression(result: RunResult) -> str:
    if not result.attribution:
        return f"{_bad_cells(result)}, but the history does not show which version began it."
    top, more = _worst(result)
    return f"{' '.join(blame.sentences(top, result))}{f' And {more} below.' if more else ''}"


def _worst(result: RunResult) -> tuple[Sequence[Attribution], str]:
    """Return the faults that the headline names, and the count of the others as text ("" for none)."""
    worst = blame.worst_first(result)
    rest = len(worst) - blame.MOST_AT_THE_TOP
    return worst[: blame.MOST_AT_THE_TOP], numbers.count(rest, "further fault") if rest > 0 else ""


def _infrastructure(result: RunResult) -> str:
    hosts = [plain(state.host.name) for state in result.hosts if state.problem is not None]
    where = f" ({words.together(hosts)} could not be used)" if hosts else ""
    lost = [cell for cell in result.cells if cell.problem or _is_untested(cell)]
    cells = numbers.count(len(result.cells), "cell")
    if not any(cell.verdict.trials for cell in result.cells):
        return f"Nothing could be measured: {len(lost)} of {cells} are untested{where}."
    how = "" if all(_is_untested(cell) for cell in lost) else " as planned"
    told = f"{len(lost)} of {cells} could not be measured{how}{where}"
    seen = _suspects(result)
    return _unconfirmed(seen, told) if seen else f"Nothing bad in what ran, but {told}."


def _is_untested(cell: CellResult) -> bool:
    """Return whether the cell should have been measured but was not."""
    return cell.verdict.verdict == "untested" and cell.cell.excluded is None and not is_needless(cell)


def _inconclusive(result: RunResult) -> str:
    unsure = [cell.verdict.verdict for cell in result.cells if cell.verdict.verdict in UNSURE]
    kinds = [f"{unsure.count(name)} {name}" for name in ("suspect", "inconclusive") if name in unsure]
    cells = numbers.count(len(result.cells), "cell")
    told = [f"{len(unsure)} of {cells} could not be decided ({', '.join(kinds)})"] if unsure else []
    early = sum(cell.verdict.provisional for cell in result.cells)
    few = [f"{early} of {cells} had too few launches to be called good"] if early else []
    unsaid = sum(_is_stopped(cell) and not cell.verdict.trials for cell in result.cells)
    none = [f"{unsaid} of {cells} had no launch"] if unsaid else []
    why = _why_stopped(result)
    seen = (seems_bad_first.lines(result) if why else []) or _suspects(result)
    rest = "; ".join([*told, *few, *none, *([] if why and seen else _blind(result))])
    if seen:
        return _unconfirmed(seen, rest, why=why)
    return f"{why}{'. ' if why else ''}Nothing bad found, but {rest}."


def _unconfirmed(seen: Sequence[str], rest: str, *, why: str = "") -> str:
    """Return the headline of a run in which something looks bad that is not confirmed: it comes before all else."""
    more = [f"{why or 'Also'}: {rest}"] if rest else list(filter(None, [why]))
    return "".join(f"{text}. " for text in (f"Not confirmed: {'; '.join(seen)}", *more)).rstrip()


def _is_stopped(cell: CellResult) -> bool:
    return cell.skipped is not None and cell.skipped.by == "stop"


def _why_stopped(result: RunResult) -> str:
    """Return `Stopped by --quick`, or "" if the sweep was not stopped early."""
    why = next((cell.skipped.why for cell in result.cells if cell.skipped is not None and _is_stopped(cell)), "")
    return f"{why[:1].upper()}{why[1:]}"


def _suspects(result: RunResult) -> list[str]:
    """Return what makes each suspect cell, or good cell with a suspect signal, look bad: `six 1.16.0: step time is 300
    times that of …`.
    """
    told = []
    for cell in result.cells:
        name = signal_words.matter(cell.verdict) if cell.verdict.verdict in GOOD else None
        is_signal = name is not None and cell.verdict.signals[name].seen == "suspect"
        if is_signal or cell.verdict.verdict == "suspect":
            image = cell.cell.image
            told.append(f"{plain(image.series)} {version(image.version)}: {seems_bad_first.reason(cell)}")
    return words.at_most(told, _MOST_TITLES, rest="{} more also seem worse")


def _blind(result: RunResult) -> list[str]:
    good = [cell.verdict for cell in result.cells if cell.verdict.verdict in GOOD and cell.verdict.blind]
    blind = dict.fromkeys(name for verdict in good for name in verdict.blind)
    absent = {name: words.absent(name, result.cells) for name in blind}
    texts = [text for _, text in sorted(itertools.chain(*absent.values()), key=lambda told: told[0])]
    told = words.at_most(texts, _MOST_TITLES, rest="and {} more below")
    coarse = [name for name, some in absent.items() if not some]
    if not coarse:
        return told
    titles = words.some_of([shown_signal(name).title for name in coarse], _MOST_TITLES)
    cells = numbers.count(sum(any(name in coarse for name in verdict.blind) for verdict in good), "cell")
    return [*told, f"{titles} could not be measured as finely as the limit requires in {cells}"]


def _unfinished(result: RunResult, *, begins: str, ends: str) -> str:
    done = sum(cell.verdict.trials > 0 for cell in result.cells)
    cells = numbers.count(len(result.cells), "cell")
    early = sum(cell.verdict.provisional for cell in result.cells)
    sure = f", {early} of them in too few launches to be called good" if early else ""
    told = f"{begins} {done} of {cells} measured{sure}{ends}."
    seen = [*_bad_so_far(result), *(seems_bad_first.lines(result) or _suspects(result))]
    return f"{told} So far: {'; '.join(seen)}." if seen else told


def _bad_so_far(result: RunResult) -> list[str]:
    if result.attribution:
        top, more = _worst(result)
        return [*(text.rstrip(".") for text in blame.sentences(top, result)), *([f"and {more} below"] if more else [])]
    return [_bad_cells(result)] if any(cell.verdict.verdict in BAD for cell in result.cells) else []


def _ok(result: RunResult) -> str:
    tones = [words.tone(cell.verdict.verdict) for cell in result.cells]
    cells = numbers.count(len(tones), "cell")
    if tones and "none" not in tones:
        return f"Nothing bad: {'all ' if len(tones) > 1 else ''}{cells} {'are' if len(tones) > 1 else 'is'} good."
    good = tones.count("good")
    if all(is_needless(cell) for cell in result.cells if words.tone(cell.verdict.verdict) == "none"):
        return f"Nothing bad in the {good} of {cells} that were run; the other {len(tones) - good} were not."
    if not good:
        return f"Nothing was run: {_all_of(len(tones))} excluded or incompatible with the host."
    return f"Nothing bad: {good} of {cells} good, the rest not measured."


def _all_of(cells: int) -> str:
    return "the only cell is" if cells == 1 else f"all {cells:,} cells are"


_SENTENCES: dict[str, Callable[[RunResult], str]] = {
    "regression": _regression,
    "infrastructure": _infrastructure,
    "inconclusive": _inconclusive,
    "interrupted": partial(_unfinished, begins="Interrupted with", ends=f"; {Remedy.SAME_SWEEP()}"),
    "ok": _ok,
    "running": partial(_unfinished, begins="Still running, with", ends=""),
}


def _bad_cells(result: RunResult) -> str:
    bad = [cell.verdict.verdict for cell in result.cells if words.tone(cell.verdict.verdict) == "bad"]
    kinds = [f"{bad.count(name)} {name}" for name in dict.fromkeys(bad)]
    return f"{len(bad)} of {numbers.count(len(result.cells), 'cell')} bad ({', '.join(kinds)})"
