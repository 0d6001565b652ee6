"""Compares two launches that returned exact values: is one worse by more than other seeds, or rounding, make it?

All limits here are those of `metrics` in docs/matrix.md; benchmarks/accuracy_results.py measures what they accuse.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from harness.judge.trace.samples import settled_median
from harness.model import Floats

EXACT_LIMIT = 0.01
"""Least change, as a share, that is bad for a value without a limit that is the same in all launches, if it is the same
share, or the same amount, in all parts of a launch."""
LATE_LIMITS = {"drop": 0.15, "rise": 0.35, "change": 0.35}
"""Least change at the end of a launch that is bad for such a value if the versions part on the way: other seeds, and
rounding that chaos amplifies, end less far apart. A score cannot exceed 1, so seeds change it less."""
PARTS = 8
"""Parts of a launch, or of its end, whose mean differences must agree: differences of neighbouring steps may follow one
another."""
STEADY, STEADY_FEW = 0.2, 0.05
"""Largest deviation of the parts' differences, as a share of their mean, that counts as the same all along; if
there are fewer numbers than parts, other seeds agree as well by chance, and less counts."""
TINY = 1e-300
ALIKE = 1e-3
"""Largest relative difference of the first numbers of versions that begin alike."""
LEARNING_LIMIT = 0.15
"""Least change at the end that is bad for versions that begin alike and part at once, and to one side: the newer one
learns slower. Rounding parts them late, and other batches to both sides."""
SCORE_LIMIT = 0.05
"""Least drop of a score at the end that is bad if it is lower all along."""
MUCH_MORE = 3.0
"""Ratio of the difference at the end to the largest one before the last quarter from which it counts."""
END = 16
"""The end of a launch is the last 1/END of its rows, at least one."""
FEWEST = 3
"""Fewest numbers of a launch that tell a steady change from that of other seeds."""
OTHER_LIMITS = {"drop": 0.03, "rise": 0.10, "change": 0.10}
"""Least change that is another result, though not shown to be worse: that of one number, or of numbers that all left
the range of the old ones. Of a whole number, any change counts, but of a score more than 1: 98 % may be rounded."""
MOST_EXACT = 2.0**53
"""From here on, all numbers are whole."""
MOST_PLACES = 8
"""Most decimal places to which a number counts as rounded."""
LAST_DIGITS = 1e-6
"""Values below this, and differences below this share of the largest value, are rounding."""
RANGE = 0.10
"""Share of all that a value moves in a launch, by which a change at the end is measured if the value itself is less: a
loss that fell from 2 to 0.01 may end at 0.02."""


def same_values(first: Floats, second: Floats) -> bool:
    """Return whether two launches returned the same values. A step that failed in one of them has none (NaN)."""
    if first.shape != second.shape:
        return False
    known = ~(np.isnan(first) | np.isnan(second))
    return bool(np.array_equal(first[known], second[known]) if known.any() else np.isnan([first, second]).all())


def worse_by(relative: float, rule: str) -> float:
    """Return by which share a change is worse; negative if it is better."""
    return {"change": abs(relative), "rise": relative, "drop": -relative}.get(rule, 0.0)


def parts_from(old: Floats, new: Floats, rule: str) -> Literal["value", "late", ""]:
    """Return where an exact value is worse by more than other seeds, or rounding, may make it: by the same share or
    amount all along (`value`), or much worse at its end (`late`); "" if nowhere."""
    old, new = in_both(old, new)
    if len(old) >= FEWEST and worse_by(relative(usual_value(old), usual_value(new)), rule) > EXACT_LIMIT:
        sizes = np.maximum(np.abs(old), TINY)
        if _is_steady(new - old) or _is_steady((new - old) / sizes):
            return "value"
    has_last_quarter = len(old) >= 4
    return "late" if has_last_quarter and _ends_worse(old, new, rule) else ""


def is_other(old: Floats, new: Floats, rule: str) -> bool:
    """Return whether an exact value is another one that nobody should miss, though it is not shown to be worse: better
    by more than other seeds make it, or beyond all that the old one moves in a launch. One number moves nowhere."""
    if parts_from(new, old, rule):
        return True
    old, new = in_both(old, new)
    if are_whole(old, new) and rule == "change":
        return not np.array_equal(old, new)
    change, least = abs(usual_value(new) - usual_value(old)), OTHER_LIMITS[rule] * abs(usual_value(old))
    return len(old) > 0 and change > max(min(least, 1.0) if are_whole(old, new) else least, float(np.ptp(old)))


def are_whole(*every: Floats) -> bool:
    """Return whether all finite values are whole numbers."""
    known = np.concatenate([values[np.isfinite(values)] for values in every])
    return bool((known == np.trunc(known)).all() and (np.abs(known) < MOST_EXACT).all())


def in_both(old: Floats, new: Floats) -> tuple[Floats, Floats]:
    """Return the numbers of the rows in which both have one."""
    rows = min(len(old), len(new))
    known = np.isfinite(old[:rows]) & np.isfinite(new[:rows])
    return old[:rows][known], new[:rows][known]


def is_rounding(old: Floats, new: Floats, *, largest: float, least: float = LAST_DIGITS) -> bool:
    """Return whether two launches differ only in the last digits: all their numbers are below `least`, or no difference
    reaches LAST_DIGITS of `largest`, the largest number under this name. Those of whole numbers do not count."""
    sizes, differences = np.abs([old, new]), np.abs(new - old)
    is_small = float(differences.max(initial=0.0)) < LAST_DIGITS * largest
    return float(sizes.max(initial=0.0)) < least or (is_small and not are_whole(old, new))


def unit_of(values: Floats) -> float:
    """Return the unit of the last decimal place that the numbers have, 0 if they have more than MOST_PLACES."""
    places = (n for n in range(MOST_PLACES + 1) if np.array_equal(np.round(values, n), values))
    return next((10.0**-n for n in places), 0.0)


def _is_steady(differences: Floats) -> bool:
    """Return whether the differences are the same in all parts, and as large in the first rows: those of other seeds
    begin anywhere."""
    means, first = _means(differences), differences[:PARTS]
    mean, most = float(means.mean()), STEADY if len(differences) >= PARTS else STEADY_FEW
    return float(means.std()) <= most * abs(mean) and float(np.abs(first - mean).max()) <= abs(mean) / 2


def _ends_worse(old: Floats, new: Floats, rule: str) -> bool:
    """Return whether the last quarter is worse in all its parts, or the end is much worse, and not only as other seeds
    or rounding may make it: the versions begin alike and part to one side at once, or differed much less before."""
    turn, span = len(old) - len(old) // 4, float(np.ptp(old))
    before, late = _means((new - old)[:turn]), _means((new - old)[turn:])
    first, least = np.abs(new - old)[:PARTS], ALIKE * abs(float(old[0]))
    is_aside = bool((before * late.mean() >= 0).all()) and bool((late * late.mean() > 0).all())
    begins_alike = is_aside and first[0] <= least
    worse = _worse_share(old[turn:], new[turn:], rule, span=span)
    if begins_alike and worse > (LEARNING_LIMIT if first.max() > least else LATE_LIMITS[rule]):
        return True
    if is_aside and rule == "drop" and worse > SCORE_LIMIT:
        return True
    end = _means(_end(new - old))
    earlier = (new - old)[:turn] if len(end) < PARTS else before  # means of as many rows, or of more
    is_late = max(float(end.min()), -float(end.max())) > MUCH_MORE * float(np.abs(earlier).max())
    return is_late and len(old) >= PARTS and _worse_share(_end(old), _end(new), rule, span=span) > LATE_LIMITS[rule]


def _worse_share(old: Floats, new: Floats, rule: str, *, span: float) -> float:
    """Return by which share the mean is worse; `span` is how far the old value moves in a launch."""
    size = max(abs(float(np.median(old))), RANGE * span)
    return worse_by(float((new - old).mean()) / max(size, TINY), rule)


def _end(values: Floats) -> Floats:
    """Return the last values of a launch: one END-th of them, at least one."""
    return values[-max(1, len(values) // END) :]


def _means(values: Floats) -> Floats:
    """Return the means of the parts of some values."""
    return np.array([float(part.mean()) for part in np.array_split(values, min(PARTS, len(values)))])


def late_value(values: Floats) -> float:
    """Return the median of the end of the finite values; NaN if there are none."""
    known = values[np.isfinite(values)]
    return float(np.median(_end(known))) if len(known) else math.nan


def usual_value(values: Floats) -> float:
    """Return the median of the finite values after the warm-up quarter; NaN if there are none."""
    median = settled_median(values)
    return math.nan if median is None else median


def relative(old: float, new: float, *, scale: float = 0.0) -> float:
    """Return the change as a share of the old value, or of `scale` if given, because old values may be near zero."""
    if old == new:
        return 0.0
    size = scale or abs(old)
    return (new - old) / size if size else math.copysign(math.inf, new - old)
