"""The smallest rule over params: what a bug report needs to reproduce the fault."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.judge.attribution.param_rules import find_rule, rule_holds
from harness.model import ParamCondition, Rule, Scalar, Scenario, Variant, Where
from tests.nightly import many

SCENARIO = Scenario(name="signal", where=Where(file="m.yaml", line=1, key="scenarios.signal"), script=Path("s.py"))
OPS = ("rfft", "fft", "ifft", "dct")
INPUTS = ("random", "variable", "zeros", "ones", "constant", "numpy")


def variant(**params: Scalar) -> Variant:
    return Variant(scenario=SCENARIO, params=tuple(params.items()))


SIGNAL = [variant(op=op, input=given) for op in OPS for given in INPUTS]


def leaks(of: Variant) -> bool:
    return dict(of.params)["input"] in ("random", "variable")


def test_the_story() -> None:
    rule = find_rule([one for one in SIGNAL if leaks(one)], [one for one in SIGNAL if not leaks(one)])
    assert rule == Rule(
        conditions=(ParamCondition(param="input", values=("random", "variable")),), indifferent=("op",), bad=8, good=16
    )


def test_what_was_not_run_is_in_no_rule_and_is_told() -> None:
    known = [one for one in SIGNAL if dict(one.params)["input"] != "variable"]
    unknown = [one for one in SIGNAL if one not in known]
    rule = find_rule([one for one in known if leaks(one)], [one for one in known if not leaks(one)], unknown)
    assert rule is not None
    assert rule.conditions == (ParamCondition(param="input", values=("random",)),)
    assert len(rule.never_run) == 4


def test_a_param_that_was_only_good_elsewhere_is_not_called_indifferent() -> None:
    """dct ran only with constants: it is unknown what it does with random input."""
    known = [one for one in SIGNAL if dict(one.params)["op"] != "dct" or dict(one.params)["input"] == "constant"]
    rule = find_rule([one for one in known if leaks(one)], [one for one in known if not leaks(one)])
    assert rule is not None
    assert rule.indifferent == ()


def test_two_params_that_cannot_be_told_apart_are_both_named() -> None:
    rule = find_rule([variant(op="rfft", input="random")], [variant(op="fft", input="constant")])
    assert rule is not None
    assert rule.conditions == (ParamCondition(param="op", values=("rfft",)),)
    assert rule.also == ((ParamCondition(param="input", values=("random",)),),)


def test_either_of_two_params() -> None:
    bad = [one for one in SIGNAL if dict(one.params)["op"] == "dct" or leaks(one)]
    rule = find_rule(bad, [one for one in SIGNAL if one not in bad])
    assert rule is not None
    assert rule.any_of
    assert rule.conditions == (
        ParamCondition(param="op", values=("dct",)), ParamCondition(param="input", values=("random", "variable")),
    )  # fmt: skip


def test_of_either_of_two_params_no_value_is_named_that_another_explains() -> None:
    """b = 3 was bad only with a = 1, which is bad with every b: b = 3 was reported to be enough."""
    bad = [variant(a=1, b=2), variant(a=1, b=3), variant(a=1, b=4), variant(a=0, b=2)]
    rule = find_rule(bad, [variant(a=0, b=4), variant(a=0, b=5)])
    assert rule is not None
    assert rule.any_of
    assert rule.conditions == (ParamCondition(param="a", values=(1,)), ParamCondition(param="b", values=(2,)))


def test_one_exception_among_many_is_told() -> None:
    """Parity of the third param, but for one corner: no rule separates the variants, and one is nearly right."""
    every = [variant(op=op, input=given, n=n) for op in OPS for given in INPUTS for n in (1, 2, 3, 4)]
    odd = variant(op="dct", input="random", n=3)
    also = variant(op="fft", input="ones", n=2)
    bad = [one for one in every if (leaks(one) and one != odd) or one == also]
    rule = find_rule(bad, [one for one in every if one not in bad])
    assert rule is not None
    assert rule.conditions == (ParamCondition(param="input", values=("random", "variable")),)
    assert set(rule.exceptions) == {odd, also}


def test_no_rule_is_said_where_there_is_none() -> None:
    every = [variant(a=a, b=b, c=c, d=d) for a, b, c, d in itertools.product((0, 1), repeat=4)]
    parity = [one for one in every if sum(int(bool(value)) for _, value in one.params) % 2]
    assert find_rule(parity, [one for one in every if one not in parity]) is None


def test_all_bad_needs_no_rule() -> None:
    rule = find_rule(SIGNAL, [])
    assert rule == Rule(conditions=(), indifferent=("op", "input"), bad=24)


def test_1_and_true_and_1_0_are_three_values() -> None:
    rule = find_rule([variant(n=1)], [variant(n=True), variant(n=1.0)])
    assert rule is not None
    assert [rule_holds(rule, variant(n=value)) for value in (1, True, 1.0)] == [True, False, False]


# ---------------------------------------------------------------- against brute force

VALUES = (0, 1, 2)
PARAMS = ("a", "b", "c")
SPACE = [variant(a=a, b=b, c=c) for a, b, c in itertools.product(VALUES, repeat=3)]


def every_rule(size: int) -> Iterator[Rule]:
    sets = [s for n in (1, 2) for s in itertools.combinations(VALUES, n)]
    for names in itertools.combinations(PARAMS, size):
        for chosen in itertools.product(sets, repeat=size):
            conditions = tuple(
                ParamCondition(param=name, values=values) for name, values in zip(names, chosen, strict=True)
            )
            yield Rule(conditions=conditions)
            yield Rule(conditions=conditions, any_of=True)


def separates(rule: Rule, bad: Sequence[Variant], good: Sequence[Variant]) -> bool:
    return all(rule_holds(rule, one) for one in bad) and not any(rule_holds(rule, one) for one in good)


@settings(max_examples=many(24, 600))
@given(seed=st.randoms(use_true_random=False), size=st.integers(1, 3), share=st.floats(0.3, 1))
def test_a_planted_rule_is_found_and_no_smaller_one_exists(seed: object, size: int, share: float) -> None:
    rng = seed
    planted = rng.choice(list(every_rule(size)))  # type: ignore[attr-defined]
    ran = [one for one in SPACE if rng.random() < share]  # type: ignore[attr-defined]
    bad = [one for one in ran if rule_holds(planted, one)]
    good = [one for one in ran if one not in bad]
    assume(bad and good)
    found = find_rule(bad, good)
    assert found is not None
    assert separates(found, bad, good)
    assert found.exceptions == ()
    smaller = [rule for n in range(1, len(found.conditions)) for rule in every_rule(n)]
    assert not any(separates(rule, bad, good) for rule in [*smaller, *one_value_less(found)])


def one_value_less(rule: Rule) -> Iterator[Rule]:
    for n, one in enumerate(rule.conditions):
        for value in one.values:
            fewer = ParamCondition(param=one.param, values=tuple(each for each in one.values if each is not value))
            yield Rule(conditions=(*rule.conditions[:n], fewer, *rule.conditions[n + 1 :]), any_of=rule.any_of)


@settings(max_examples=many(24, 600))
@given(labels=st.lists(st.sampled_from([True, False, None]), min_size=9, max_size=9))
def test_a_rule_is_found_exactly_where_brute_force_finds_one(labels: list[bool | None]) -> None:
    square = [one for one in SPACE if dict(one.params)["c"] == 0]
    bad = [one for one, label in zip(square, labels, strict=True) if label]
    good = [one for one, label in zip(square, labels, strict=True) if label is False]
    assume(bad and good)
    sizes = [n for n in (1, 2) if any(separates(rule, bad, good) for rule in every_rule(n))]
    found = find_rule(bad, good)
    assert (found is not None) == bool(sizes)
    if found is not None:
        assert len(found.conditions) == sizes[0]
