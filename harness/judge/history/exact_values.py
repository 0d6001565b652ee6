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
"""Ratio of the difference at the end to the largest one before from which it counts."""
ONE_LIMITS = {"drop": 0.03, "rise": 0.10, "change": 0.10}
"""Least change that is bad if a launch has only one number: whether it is the same all along cannot be told."""
RANGE = 0.10
"""Share of all that a value moves in a launch, by which a change at the end is measured if the value itself is less: a
loss that fell from 2 to 0.01 may end at 0.02."""


def same_values(first: Floats, second: Floats) -> bool:
    """Return whether two launches returned the same values."""
    return first.shape == second.shape and bool(np.array_equal(first, second, equal_nan=True))


def worse_by(relative: float, rule: str) -> float:
    """Return by which share a change is worse; negative if it is better."""
    return {"change": abs(relative), "rise": relative, "drop": -relative}.get(rule, 0.0)


def parts_from(old: Floats, new: Floats, rule: str) -> Literal["value", "late", ""]:
    """Return where an exact value is worse by more than other seeds, or rounding, may make it: by the same share or
    amount all along (`value`), or much worse at its end (`late`); "" if nowhere."""
    rows = min(len(old), len(new))
    known = np.isfinite(old[:rows]) & np.isfinite(new[:rows])
    old, new = old[:rows][known], new[:rows][known]
    limit = ONE_LIMITS[rule] if len(old) == 1 else EXACT_LIMIT
    if len(old) and worse_by(relative(usual_value(old), usual_value(new)), rule) > limit:
        sizes = np.maximum(np.abs(old), TINY)
        if _is_steady(new - old) or _is_steady((new - old) / sizes):
            return "value"
    has_last_quarter = len(old) >= 4
    return "late" if has_last_quarter and _ends_worse(old, new, rule) else ""


def _is_steady(differences: Floats) -> bool:
    """Return whether the differences are the same in all parts, and as large in the first rows: those of other seeds
    begin anywhere."""
    means, first = _means(differences), differences[:PARTS]
    mean, most = float(means.mean()), STEADY if len(differences) >= PARTS else STEADY_FEW
    return float(means.std()) <= most * abs(mean) and float(np.abs(first - mean).max()) <= abs(mean) / 2


def _ends_worse(old: Floats, new: Floats, rule: str) -> bool:
    """Return whether the last quarter is much worse in all its parts, and not only as other seeds or rounding may make
    it: the versions begin alike and part to one side at once, or differed much less before."""
    turn = len(old) - len(old) // 4
    size = max(abs(float(np.median(old[turn:]))), RANGE * float(np.ptp(old)))
    before, end = _means((new - old)[:turn]), _means((new - old)[turn:])
    mean = float(end.mean())
    worst = worse_by(mean / max(size, TINY), rule)
    if (end * mean <= 0).any():
        return False
    first, least = np.abs(new - old)[:PARTS], ALIKE * abs(float(old[0]))
    is_aside = bool((before * mean >= 0).all())
    is_learning = is_aside and first[0] <= least < first.max()
    is_late = abs(mean) > MUCH_MORE * float(np.abs(before).max())
    return (
        (is_learning and worst > LEARNING_LIMIT)
        or (is_aside and rule == "drop" and worst > SCORE_LIMIT)
        or (is_late and len(old) >= PARTS and worst > LATE_LIMITS[rule])
    )


def _means(values: Floats) -> Floats:
    """Return the means of the parts of some values."""
    return np.array([float(part.mean()) for part in np.array_split(values, min(PARTS, len(values)))])


def late_value(values: Floats) -> float:
    """Return the median of the last quarter of the finite values; NaN if there are none."""
    known = values[np.isfinite(values)]
    return float(np.median(known[-max(1, len(known) // 4) :])) if len(known) else math.nan


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
