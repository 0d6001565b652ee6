"""Finds the smallest rule over params that separates the bad variants of a scenario from the good ones.

A rule is a set of conditions, of which all or any must hold; a condition is a set of values of one param. For a given
set of params, each of the two kinds has one smallest rule: the bounding box of all bad variants, and the complement of
the bounding box of all good variants. If neither separates, no rule over these params does, so a search over the sets
of params is exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from harness.model import ParamCondition, Rule, Scalar, Variant

MOST_PARAMS = 3
"""Maximum number of params in a rule. With more, the search over their sets takes much longer."""
EXCEPTIONS = 0.1
"""Maximum share of variants that a rule may misclassify, if no rule is right for all. Of fewer than ten variants it may
misclassify none: what looks like an exception there may be the rule."""

Value = tuple[str, Scalar]
"""A value with its type's name: 1, 1.0 and True are three different values."""
ParamRow = Mapping[str, Value]


def find_rule(
    bad: Sequence[Variant],
    good: Sequence[Variant],
    unknown: Sequence[Variant] = (),
    *,
    otherwise: Sequence[Variant] = (),
) -> Rule | None:
    """Return the smallest rule over the params of one scenario that holds for `bad` and not for `good`.

    It does not hold for `otherwise` either: these variants have another fault, with its own rule. Fewer params are
    preferred, then rules of which all conditions must hold, then fewer values. Values that only `unknown` variants have
    are in no rule. If no rule of up to MOST_PARAMS params separates, a rule of one param with few exceptions is
    returned, or None. If `good` and `otherwise` are empty, the rule has no conditions.
    """
    others = [*good, *otherwise]
    bad_rows, other_rows = list(map(_row, bad)), list(map(_row, others))
    rule = _smallest(bad_rows, other_rows)
    if rule is None:
        return None
    missed = [variant for variant in bad if not rule_holds(rule, variant)]
    wrong = missed + [variant for variant in others if rule_holds(rule, variant)]
    return replace(
        rule,
        indifferent=() if wrong else tuple(_indifferent(rule, bad_rows, other_rows)),
        bad=len(bad),
        good=len(good),
        otherwise=len(otherwise),
        exceptions=tuple(wrong),
        never_run=tuple(unknown),
    )


def rule_holds(rule: Rule, variant: Variant) -> bool:
    """Return whether a rule predicts that a variant is bad."""
    row = _row(variant)
    met = [row[condition.param] in map(_value, condition.values) for condition in rule.conditions]
    return any(met) if rule.any_of else all(met)


def _smallest(bad: Sequence[ParamRow], others: Sequence[ParamRow]) -> Rule | None:
    """Return the smallest rule that separates, with equally small rules in `also`; otherwise, a rule with few
    exceptions or None.
    """
    rows = [*bad, *others]
    names = [name for name in _names(rows) if len(_values(rows, name)) > 1]
    for size in range(min(MOST_PARAMS, len(names)) + 1):
        separating = sorted(_separating(names, size, bad, others), key=lambda rule: (rule.any_of, _extent(rule)))
        if separating:
            best, *rest = separating
            also = (rule.conditions for rule in rest if not rule.any_of and _params(rule) != _params(best))
            return replace(best, also=tuple(also))
    return _rough(names, bad, others)


def _separating(names: Sequence[str], size: int, bad: Sequence[ParamRow], good: Sequence[ParamRow]) -> Iterator[Rule]:
    for chosen in itertools.combinations(names, size):
        inside = {name: _values(bad, name) for name in chosen}
        if not any(all(row[name] in inside[name] for name in chosen) for row in good):
            yield _rule(inside, any_of=False)
        outside = {name: [v for v in _values(bad, name) if v not in _values(good, name)] for name in chosen}
        if size > 1 and all(any(row[name] in outside[name] for name in chosen) for row in bad):
            yield _rule(_needed(outside, bad), any_of=True)


def _needed(values: Mapping[str, Sequence[Value]], bad: Sequence[ParamRow]) -> dict[str, list[Value]]:
    """Drop the values, the rarest first, whose bad rows other values explain: nothing shows that they suffice."""
    kept = {name: list(chosen) for name, chosen in values.items()}
    pairs = [(name, value) for name, chosen in values.items() for value in chosen]
    for name, value in sorted(pairs, key=lambda pair: sum(row[pair[0]] == pair[1] for row in bad)):
        fewer = {**kept, name: [other for other in kept[name] if other != value]}
        if all(any(row[param] in chosen for param, chosen in fewer.items()) for row in bad):
            kept = fewer
    return kept


def _rough(names: Sequence[str], bad: Sequence[ParamRow], good: Sequence[ParamRow]) -> Rule | None:
    """Return the rule of one param with the fewest exceptions, if they are few; the majority decides on each value."""
    allowed = int(EXCEPTIONS * (len(bad) + len(good)))
    best: tuple[int, Rule] | None = None
    for name in names:
        wrong, kept = 0, []
        for value in _values(bad, name):
            hits, misses = (sum(row[name] == value for row in rows) for rows in (bad, good))
            wrong += min(hits, misses)
            if hits > misses:
                kept.append(value)
        if kept and wrong <= allowed and (best is None or wrong < best[0]):
            best = (wrong, _rule({name: kept}, any_of=False))
    return None if best is None else best[1]


def _indifferent(rule: Rule, bad: Sequence[ParamRow], others: Sequence[ParamRow]) -> Iterator[str]:
    """Yield the params outside the rule of which every value that ran was bad, so that no value prevents the fault."""
    rows = [*bad, *others]
    for name in _names(rows):
        values = _values(rows, name)
        if name not in _params(rule) and len(values) > 1 and len(_values(bad, name)) == len(values):
            yield name


# ---------------------------------------------------------------- variants as rows

_MISSING: Value = ("", None)
"""The value of a param that a variant does not have."""


def _row(variant: Variant) -> ParamRow:
    return _Row({name: _value(value) for name, value in variant.params})


class _Row(dict[str, Value]):
    def __missing__(self, name: str) -> Value:
        return _MISSING


def _value(value: Scalar) -> Value:
    return type(value).__name__, value


def _names(rows: Sequence[ParamRow]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _values(rows: Sequence[ParamRow], name: str) -> list[Value]:
    """Return the distinct values of a param, in order of appearance."""
    return list(dict.fromkeys(row[name] for row in rows))


def _rule(values: Mapping[str, Collection[Value]], *, any_of: bool) -> Rule:
    conditions = [
        ParamCondition(param=name, values=tuple(value for _, value in chosen))
        for name, chosen in values.items()
        if chosen
    ]
    return Rule(conditions=tuple(conditions), any_of=any_of and len(conditions) > 1)


def _extent(rule: Rule) -> int:
    return sum(len(condition.values) for condition in rule.conditions)


def _params(rule: Rule) -> set[str]:
    return {condition.param for condition in rule.conditions}
