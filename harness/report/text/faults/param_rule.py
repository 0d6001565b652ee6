"""Describes the rule that separates bad params from good ones."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model import Attribution, ParamCondition, Rule, Scalar, Variant, written
from harness.report.text import numbers, words
from harness.report.text.harmless_text import plain

_MOST_LISTED = 3


def rule_text(rule: Rule | None) -> str | None:
    """Return the rule as a condition: `input in {random, variable}`; None without a rule or conditions."""
    if rule is None or not rule.conditions:
        return None
    return (" or " if rule.any_of else " and ").join(_condition(condition) for condition in rule.conditions)


def when_text(attribution: Attribution) -> str:
    """Return the rule as part of a sentence: `when input is random or variable`; "" if there is no rule."""
    rule, many = attribution.rule, len(attribution.variants)
    if attribution.unruly:
        return f"in {numbers.count(many, 'variant')}, with no simple rule"
    if rule is None:
        return ""
    if not rule.conditions:
        return _all_of(many, never_run=len(rule.never_run))
    joined = (", or " if rule.any_of else " and ").join(_spoken(condition) for condition in rule.conditions)
    also = "".join(
        f" (or when {' and '.join(map(_spoken, other))}: the two always occur together)" for other in rule.also[:1]
    )
    odd = f" ({numbers.count(len(rule.exceptions), 'exception')})" if rule.exceptions else ""
    return f"when {joined}{also}{odd}"


def evidence(rule: Rule) -> str:
    """Return the evidence for a rule: `op makes no difference; 8 variants bad, 16 good`."""
    parts = []
    if rule.indifferent:
        names = words.together([plain(name) for name in rule.indifferent])
        parts.append(f"{names} {'makes' if len(rule.indifferent) == 1 else 'make'} no difference")
    parts.append(f"{numbers.count(rule.bad, 'variant')} bad, {rule.good} good")
    if rule.otherwise:
        parts.append(f"{rule.otherwise} bad there with another fault")
    if rule.exceptions:
        parts.append(f"exceptions: {_listed(rule.exceptions)}")
    if rule.never_run:
        parts.append(f"{len(rule.never_run)} not judged there: {_listed(rule.never_run)}")
    return "; ".join(parts)


def _all_of(variants: int, *, never_run: int) -> str:
    if never_run:
        return f"in all variants that were judged ({variants} of {variants + never_run})"
    return "in both variants" if variants == 2 else f"in all {variants} variants"


def _condition(condition: ParamCondition) -> str:
    values = [_value(value) for value in condition.values]
    chosen = f"= {values[0]}" if len(values) == 1 else f"in {{{', '.join(values)}}}"
    return f"{plain(condition.param)} {chosen}"


def _spoken(condition: ParamCondition) -> str:
    values = [_value(value) for value in condition.values]
    return f"{plain(condition.param)} is {' or '.join(filter(None, (', '.join(values[:-1]), values[-1])))}"


def _value(value: Scalar) -> str:
    return plain(written(value))


def _listed(variants: Sequence[Variant]) -> str:
    return "; ".join(words.at_most([words.params_text(variant) for variant in variants], _MOST_LISTED))
