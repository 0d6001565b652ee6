"""Judges a table of figures from any source as step times are judged: its changes, and the minimum detectable effect.

If each version has one figure, the noise is estimated from the differences between neighbouring versions. It then
includes drift over time and the versions' own differences, so that a level shows only if several versions in a row have
it. Such figures often follow one another: load and heat last. With a correlation r between neighbours, the mean of
many has (1 + r) / (1 - r) times the variance of independent ones, and the differences between neighbours show only the
share 1 - r of the variance. What is left beside the levels shows r, and the noise is widened by both.

Differences between neighbours tell little of the noise of a short series. Where they show no level, a few changes are
tested against the noise that they leave, as in a t-test of the versions before a change and since.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from harness.judge.comparison.noise import NEGLIGIBLE
from harness.judge.history.changepoints import Laid, Levels, find_levels, lay_out, least_found
from harness.judge.history.changes import level_changes, level_ratio
from harness.judge.history.transitions import ALPHA
from harness.model import Change, Effect, Floats, SeriesVerdict, Spread, log_of_change, share_of

LASTING = 4
"""Number of versions with a level for which the minimum detectable effect is given if each version has one figure."""
FEWEST_ALONE = 8
"""Fewest versions of one figure each from which the noise can be estimated."""
FREEDOM_SHARE = 0.4
"""Degrees of freedom per version: below one, because the median uses differences that share figures."""
FAR_FROM_NEIGHBOURS = 3.0
"""Distance of a figure from the median of itself and its neighbours, in standard deviations, beyond which it is
winsorized.
"""
MOST_ODD = 3
"""Most odd figures in a row that are winsorized: fewer than LASTING."""
MOST_CORRELATED = 0.9
"""Largest correlation between neighbours that is assumed; a longer memory cannot be told from a change."""
USUAL_CORRELATION, USUAL_FIGURES = 0.3, 10
"""Correlation between neighbours that is assumed beside the measured one, and the number of figures as which it counts:
few figures show theirs poorly."""
LASTING_LOAD, LONG = 0.4, 20
"""Correlation from which load that lasts looks like a change in a series of so many figures, so that only differences
between neighbours show one."""
SEARCHES = 8
"""Most searches for levels, each with the correlation beside those that the last one found."""
MOST_CHANGES, MOST_SEARCHED = 5, 200
"""Most changes of level beside which the noise is estimated; there are at least three versions for each level. In a
longer series, of which differences between neighbours show the noise, only one is."""
RARE_RUNS = 0.05
"""A run of odd figures counts as a level if chance makes fewer runs than this of that length in the whole series."""


def judge_figures(
    figures: Floats, versions: Sequence[str], *, history: str, limit: float, falls: bool = False
) -> SeriesVerdict:
    """Judge the figures of a history, shape (rounds, versions), all positive, oldest version first. `limit` is the
    least relative change that counts; `falls`: lower figures are worse, and `limit` is less than 1.
    """
    sign, least = -1 if falls else 1, log_of_change(limit, falls=falls)
    logs = sign * np.log(figures)
    rounds, count = logs.shape
    alone, odd, correlation = rounds == 1, [], 0.0
    nothing = SeriesVerdict(
        history=history, versions=tuple(versions), rounds=rounds, falls=falls, limit=limit, changes=(), noise=None,
        visible=None, lasting=1, alone=alone,
    )  # fmt: skip
    if count < 2 or (alone and count < FEWEST_ALONE):
        return nothing
    if alone:
        laid = _laid_by_neighbours(logs)
        spread = laid.spread
        levels, correlation = _levels_beside_correlation(laid, least=least)
        far = FAR_FROM_NEIGHBOURS * spread.deviation
        beside = None if levels.shifts else _levels_beside_changes(laid, least=least)
        levels, spread, correlation = beside or (levels, spread, correlation)
        own = _noise_beside(_rest(laid.values[0], levels), pieces=len(levels.shifts) + 1)
        left = _of_means(*own) if levels.shifts or beside else _widened(spread, correlation)
        with_change = replace(left, freedom=max(left.freedom - 1, 1))
        visible = least_found(with_change, rounds=1, versions=count, alpha=ALPHA, lasting=LASTING)
        # Versions whose figure differs from its neighbours, at which no level changes.
        inside = {place for shift in levels.shifts for place in range(shift.before, shift.after + 1)}
        far_out = np.flatnonzero(np.abs(laid.raw - laid.values)[0] > max(least, far))
        odd = [versions[int(place)] for place in far_out if place not in inside]
    else:
        laid = lay_out(logs)
        levels, spread = find_levels(laid, least=least, alpha=ALPHA), laid.spread
        visible = least_found(spread, rounds=rounds, versions=count, alpha=ALPHA)
    return replace(
        nothing,
        changes=tuple(_changes(levels, versions=count, least=least, falls=falls)),
        noise=spread.deviation,
        visible=abs(share_of(sign * visible)),
        lasting=LASTING if alone else 1,
        correlation=correlation,
        odd=tuple(odd),
    )


def _changes(levels: Levels, *, versions: int, least: float, falls: bool) -> Iterator[Change[int]]:
    """Yield the findings, and the improvements that do not end a bad level, oldest first."""
    found = {
        shift: Change(
            metric="value", kind="better", before=shift.before, after=shift.after, p=shift.p,
            effect=level_ratio("value", shift.size, shift.interval),
        )
        for shift in levels.shifts if shift.size <= -least
    }  # fmt: skip
    found |= level_changes("value", range(versions), levels, least=least)
    for change in sorted(found.values(), key=lambda change: change.after):
        size = change.effect if falls else None
        ci = None if size is None or size.ci is None else (1 / size.ci[1], 1 / size.ci[0])
        yield change if size is None else replace(change, effect=Effect(value=1 / size.value, unit=size.unit, ci=ci))


# ---------------------------------------------------------------- one figure of each version


def _laid_by_neighbours(row: Floats) -> Laid:
    """Return the layout of a row of logs, shape (1, versions), of at least FEWEST_ALONE versions."""
    figures = row[0] - row[0].mean()
    spread = _spread(figures)
    far = FAR_FROM_NEIGHBOURS * spread.deviation
    middle = _running_median(figures, 1)
    share = float((np.abs(figures - middle) > 2 * far).mean())
    if share:  # where single figures are often odd, several in a row are no level
        runs = (count for count in range(1, MOST_ODD) if len(figures) * share ** (count + 1) < RARE_RUNS)
        middle = _running_median(figures, next(runs, MOST_ODD))
    drawn = middle + np.clip(figures - middle, -far, far)
    return Laid(values=drawn[None, :], raw=figures[None, :], known=np.isfinite(row), spread=spread)


def _levels_beside_correlation(laid: Laid, *, least: float) -> tuple[Levels, float]:
    """Return the levels, and the correlation between neighbours that is left beside them. Figures that follow one
    another look like levels, which take up their correlation, so each search widens the noise and drops some levels."""
    correlation = 0.0
    for _ in range(SEARCHES):
        levels = find_levels(replace(laid, spread=_widened(laid.spread, correlation)), least=least, alpha=ALPHA)
        left = _correlation(laid.values[0], levels)
        if left <= correlation:
            break
        correlation = left
    return levels, correlation


def _levels_beside_changes(laid: Laid, *, least: float) -> tuple[Levels, Spread, float] | None:
    """Return the levels that show beside the noise that one change leaves, or two, or, where a criterion prefers them
    to all fewer, more, with that noise and its correlation between neighbours; None if load that lasts may look like a
    change."""
    told, figures = None, laid.values[0]
    lowest = _criterion(figures - figures.mean(), changes=0)
    most = min(MOST_CHANGES, (laid.versions + 1) // 3 - 1) if laid.versions <= MOST_SEARCHED else 1
    for changes in range(1, most + 1):
        rest = _left_beside(figures, changes=changes)
        noise, correlation = _noise_beside(rest, pieces=changes + 1)
        above, lowest = lowest, min(lowest, _criterion(rest, changes=changes))
        if (changes > 2 and lowest == above) or (laid.versions >= LONG and correlation >= LASTING_LOAD):
            continue
        shown = replace(laid, spread=_of_means(noise, correlation))
        levels = find_levels(shown, least=least, alpha=ALPHA / changes**2)
        if len(levels.shifts) >= changes - (changes > 2):  # one of many may be too short to show
            return levels, noise, correlation
        if changes == 1:
            told = levels, noise, correlation
    return told


def _criterion(rest: Floats, *, changes: int) -> float:
    """Return the Bayesian information criterion of changes of level beside noise whose neighbours follow one another,
    given what is left of the figures. A change of unknown place counts as three parameters (Zhang and Siegmund,
    Biometrics 63, 2007)."""
    count, squares = len(rest), max(float((rest**2).sum()), len(rest) * NEGLIGIBLE**2)
    correlation = max(_unbiased(rest, squares, pieces=changes + 1), 0.0)
    return count * math.log(squares * (1 - correlation**2)) + 3 * changes * math.log(count)


def _left_beside(figures: Floats, *, changes: int) -> Floats:
    """Return what is left of figures, shape (versions,), beside so many changes of level, at least two versions apart,
    that leave least. A t-test of one change against it is the largest of all such tests (Worsley, Journal of the
    American Statistical Association 74, 1979)."""
    count, sums = len(figures), np.concatenate([[0.0], figures.cumsum()])
    places, firsts = np.arange(count + 1), []

    def gain(begin: npt.NDArray[np.intp], end: npt.NDArray[np.intp]) -> Floats:
        return np.where(end - begin < 2, -np.inf, (sums[end] - sums[begin]) ** 2 / np.maximum(end - begin, 1))

    best = gain(places[:1], places)
    for _ in range(changes - 1):
        totals = best[:, None] + gain(places[:, None], places)
        firsts.append(totals.argmax(axis=0))
        best = totals.max(axis=0)
    edges = [count, int((best + gain(places, places[-1:])).argmax())]
    for first in reversed(firsts):
        edges.append(int(first[edges[-1]]))
    return np.concatenate([piece - piece.mean() for piece in np.split(figures, edges[:0:-1])])


def _noise_beside(rest: Floats, *, pieces: int) -> tuple[Spread, float]:
    """Return the noise left beside so many levels, and the correlation between neighbours, which is 0 without noise."""
    count, squares = len(rest), max(float((rest**2).sum()), len(rest) * NEGLIGIBLE**2)
    own = _unbiased(rest, squares, pieces=pieces)
    correlation = max((count * own + USUAL_FIGURES * USUAL_CORRELATION) / (count + USUAL_FIGURES), 0.0)
    correlation = correlation if squares > count * NEGLIGIBLE**2 else 0.0
    freedom = max(count - pieces, 1)
    return Spread(deviation=math.sqrt(squares / freedom), freedom=freedom), correlation


def _of_means(spread: Spread, correlation: float) -> Spread:
    """Return the noise of independent figures whose means vary as much as those of figures with this correlation."""
    return replace(spread, deviation=spread.deviation * math.sqrt((1 + correlation) / (1 - correlation)))


def _unbiased(rest: Floats, squares: float, *, pieces: int) -> float:
    """Return the correlation between neighbours of what is left beside so many levels, whose sum of squares is
    `squares`, without most of its bias, -1 / n for each level (Marriott and Pope, Biometrika 41, 1954)."""
    count, correlation = len(rest), float((rest[1:] * rest[:-1]).sum()) / squares
    return min((correlation * count + pieces) / max(count - 3 * pieces, 0.75 * count), MOST_CORRELATED)


def _widened(spread: Spread, correlation: float) -> Spread:
    return replace(spread, deviation=spread.deviation * math.sqrt(1 + correlation) / (1 - correlation))


def _correlation(figures: Floats, levels: Levels) -> float:
    """Return the correlation between neighbours beside the levels; 0 if it is within its standard error."""
    rest, count = _rest(figures, levels), len(figures)
    total = float((rest**2).sum())
    if total <= count * NEGLIGIBLE**2:
        return 0.0
    correlation = _unbiased(rest, total, pieces=len(levels.shifts) + 1)
    return correlation if correlation > 1 / math.sqrt(count) else 0.0


def _rest(figures: Floats, levels: Levels) -> Floats:
    """Return what is left of figures, shape (versions,), beside the levels."""
    places = np.arange(len(figures))
    fitted = np.full(len(figures), levels.height)
    for shift in levels.shifts:
        length = shift.after - shift.before
        fitted += shift.size * (
            np.clip((places - shift.before) / length, 0, 1) if shift.drift else places >= shift.first
        )
    return np.asarray(figures - fitted)


def _running_median(figures: Floats, reach: int) -> Floats:
    """Return the median of each figure and of `reach` neighbours on both sides; figures near an end have the median of
    the first or the last such window.
    """
    inside = np.median(np.lib.stride_tricks.sliding_window_view(figures, 2 * reach + 1), axis=1)
    return np.asarray(np.pad(inside, reach, mode="edge"))


def _spread(figures: Floats) -> Spread:
    """Estimate the noise from the median absolute deviation of differences between neighbours, which a few changes
    hardly affect.

    If figures are rounded, so that most neighbours are equal, the smallest four fifths of the differences decide.
    """
    steps = np.diff(figures)
    steps = np.sort(np.abs(steps - np.median(steps)))
    smaller = steps[: math.ceil(0.8 * len(steps))]
    deviation = max(1.4826 * float(np.median(steps)), float(np.sqrt((smaller**2).mean()))) / math.sqrt(2)
    return Spread(deviation=max(deviation, NEGLIGIBLE), freedom=max(1, int(FREEDOM_SHARE * (len(figures) - 1))))
