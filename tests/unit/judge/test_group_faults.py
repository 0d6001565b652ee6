"""Which findings are merged: otherwise a user reads one fault twice, or two faults as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judge.attribution.group_faults import Fault, alike, faults_of
from harness.judge.history.transitions import FailureName, state_changes
from harness.model import Finding, Lane, RunResult, Variant
from harness.model.attributed import Episode, Order, episodes_of, met
from harness.report.text.headline import sentence
from tests.nightly import many
from tests.players import build, faults
from tests.players.faults import NEW, OLD

VERSIONS = [image.version for image in build.MULTIDICT.images]
ORDER: Order = {version: place for place, version in enumerate(VERSIONS)}
VARIANTS = [build.variant("s", a=number) for number in range(6)]
LETTERS: Mapping[str, bool | None] = {"b": True, "g": False, "u": None}


def findings(history: str, variant: Variant, lane: Lane = build.HERE) -> list[Finding]:
    """Return the findings of one row of letters: bad, good, unknown."""
    states = [LETTERS[letter] for letter in history]
    return [
        build.finding(
            build.MULTIDICT,
            lane,
            variant,
            kind=change.kind,
            before=None if change.before is None else VERSIONS[change.before],
            after=VERSIONS[change.after],
        )
        for change in state_changes("memory", states)
    ]


def made(histories: Sequence[str], variants: Sequence[Variant] = VARIANTS) -> list[Fault]:
    found: list[Fault] = []
    for history, variant in zip(histories, variants, strict=False):
        row = tuple(LETTERS[letter] for letter in history)
        episodes = episodes_of(findings(history, variant), ORDER, row)
        found += faults_of(variant, {build.HERE: episodes}, {build.HERE: row})
    return found


def groups(*histories: str) -> list[list[int]]:
    """Return the numbers of the variants of each fault, oldest first."""
    return [sorted(VARIANTS.index(one.variant) for one in group) for group in alike(made(histories))]


@pytest.mark.parametrize(
    ("histories", "expected"),
    [
        (("ggbbggbbgg", "ggbbgggggg"), [[0, 1], [0]]),  # the demo: one leak in both variants, another in one of them
        (("ggbbgggggg", "gggbgggggg"), [[0], [1]]),  # good in one variant where the other is bad
        (("gggbbbgggg", "gguubbgggg"), [[0, 1]]),  # may have begun at the same version
        (("gggbbbgggg", "gggbbbuugg"), [[0, 1]]),
        (("gggbbbgggg", "gggbbbuuuu"), [[0, 1]]),  # unknown whether it was fixed
        (("gggbbbgggg", "gggbbbbbbb"), [[0], [1]]),
        (("bbbggggggg", "ubbggggggg"), [[0, 1]]),
        (("ggbbgggggg", "gguubbgggg", "gggggbgggg"), [[0], [1], [2]]),
    ],
)  # fmt: skip
def test_variants_are_told_together_where_they_may_have_one_fault(
    histories: Sequence[str], expected: list[list[int]]
) -> None:
    assert groups(*histories) == expected


def test_variants_that_fail_by_something_else_are_told_apart() -> None:
    """One of two failures of one version, a TypeError with `op=get` and a SIGSEGV with `op=put`, was told of both."""
    names: Sequence[FailureName] = [("crash", None, "TypeError"), ("crash", 11, ""), ("crash", 11, "")]
    row, found = (False, False, True, True), list[Fault]()
    for name, variant in zip(names, VARIANTS, strict=False):
        episodes = {build.HERE: episodes_of(findings("ggbb", variant), ORDER, row)}
        failures = {build.HERE: [{name} if state else set() for state in row]}
        found += faults_of(variant, episodes, {build.HERE: row}, failures)
    assert [[VARIANTS.index(one.variant) for one in group] for group in alike(found)] == [[0], [1, 2]]


def test_what_may_be_any_of_several_is_told_for_itself() -> None:
    """Either of two beginnings would fit it: merged with one, it would be reported to have begun there."""
    assert groups("gbbbbbbbbb", "gggggbbbbb", "guuuuuuuub") == [[0], [1], [2]]


def test_lanes_that_may_share_a_version_are_one_fault_and_others_are_not() -> None:
    def count(old: str, new: str) -> int:
        rows = {OLD: old, NEW: new}
        episodes = {lane: episodes_of(findings(row, VARIANTS[0], lane), ORDER) for lane, row in rows.items()}
        states = {lane: tuple(LETTERS[letter] for letter in row) for lane, row in rows.items()}
        return len(faults_of(VARIANTS[0], episodes, states))

    assert count("ggbbbbbbbb", "gggbbbbbbb") == 1
    assert count("gbbggggggg", "ggggggbbbb") == 2
    assert count("gbbggggggg", "gbbgggbbbb") == 2


@pytest.mark.parametrize(
    ("old", "new", "faults"),
    [
        ("TypeError", "TypeError", 1),
        ("TypeError", "ValueError", 2),  # one card dies since 1.1 and the other since 1.3, in different ways
        ("", "ValueError", 1),  # not known
    ],
)
def test_failures_that_began_apart_are_one_fault_only_if_they_are_alike(old: str, new: str, faults: int) -> None:
    rows = {OLD: "ggggbbbbbb", NEW: "ggbbbbbbbb"}
    states = {lane: tuple(LETTERS[letter] for letter in row) for lane, row in rows.items()}
    found = {
        lane: [replace(each, metric="outcome", effect=None) for each in findings(row, VARIANTS[0], lane)]
        for lane, row in rows.items()
    }
    episodes = {lane: episodes_of(own, ORDER, states[lane]) for lane, own in found.items()}
    names = {
        lane: [{("crash", None, name)} if name and state else set() for state in states[lane]]
        for lane, name in ((OLD, old), (NEW, new))
    }
    assert len(faults_of(VARIANTS[0], episodes, states, names)) == faults


def test_a_version_that_is_bad_by_another_fault_is_not_known_here() -> None:
    first, second = made(["ggbbggbbgg"])
    assert "".join("ubg"[1 if one else 2 if one is False else 0] for one in first.states[build.HERE]) == "ggbbgguugg"
    assert "".join("ubg"[1 if one else 2 if one is False else 0] for one in second.states[build.HERE]) == "gguuggbbgg"


def test_what_made_it_worse_is_a_fault_of_its_own_and_ends_with_it() -> None:
    leak = findings("gbbbbbbggg", VARIANTS[0])
    worse = build.finding(build.MULTIDICT, build.HERE, VARIANTS[0], kind="worse", before=VERSIONS[3], after=VERSIONS[4])
    episodes = episodes_of([*leak, worse], ORDER)
    assert [(one.depth, one.finding.kind, one.ends == leak[1]) for one in episodes] == [
        (0, "first_bad", True), (1, "worse", True),
    ]  # fmt: skip
    row = tuple(LETTERS[letter] for letter in "gbbbbbbggg")
    plain, much = faults_of(VARIANTS[0], {build.HERE: episodes}, {build.HERE: row})
    assert plain.states[build.HERE] == row
    assert much.states[build.HERE] == (*[False] * 4, *[True] * 3, *[False] * 3)


# ---------------------------------------------------------------- whatever the histories

HISTORIES = st.lists(st.text("bgu", min_size=6, max_size=6), min_size=1, max_size=5)


@settings(max_examples=many(40, 3000))
@given(histories=HISTORIES)
def test_every_episode_is_in_one_fault_and_holds_what_is_said_of_it(histories: list[str]) -> None:
    found = alike(made(histories))
    told = [episode for group in found for fault in group for episode in fault.episodes[build.HERE]]
    assert len(told) == sum(len(episodes_of(findings(one, VARIANTS[0]), ORDER)) for one in histories)
    for group in found:
        each = [one for fault in group for one in fault.episodes[build.HERE]]
        common = met(each)
        assert common is not None
        assert len({fault.variant for fault in group}) == len(group)
        assert all(_holds(one, common) for one in each)


def _holds(one: Episode, common: Episode) -> bool:
    """Return whether the reported interval lies within that of a finding."""
    pairs = [(one.since, common.since), (one.until, common.until)]
    return all(own is None or (said is not None and own[0] <= said[0] < said[1] <= own[1]) for own, said in pairs)


@settings(max_examples=many(40, 3000))
@given(histories=HISTORIES, seed=st.randoms(use_true_random=False))
def test_the_order_of_variants_makes_no_difference(histories: list[str], seed: object) -> None:
    found = made(histories)
    turned = list(found)
    seed.shuffle(turned)  # type: ignore[attr-defined]

    def sets(some: Sequence[Sequence[Fault]]) -> set[frozenset[int]]:
        return {frozenset(map(id, group)) for group in some}

    assert sets(alike(found)) == sets(alike(turned))


# ---------------------------------------------------------------- as it is said


def demo(histories: Mapping[str, str]) -> RunResult:
    variants = [build.variant("headers", then=then) for then in histories]

    def judge(version: str, _lane: Lane, one: Variant) -> object:
        letter = histories[str(one.params[0][1])][VERSIONS.index(version)]
        rate = 7.84 if VERSIONS.index(version) < 6 else 2.82
        return {"b": build.leak(rate), "g": build.flat(), "u": build.unknown("untested", "no time")}[letter]

    return faults.judged(build.run([(build.MULTIDICT, [build.HERE], variants)], judge))  # type: ignore[arg-type]


def test_each_fault_has_a_rule_of_its_own() -> None:
    """The same leak was reported twice, because one of two variants had another leak later."""
    assert sentence(demo({"pop": "gggbbggbbg", "read": "gggbbggggg"})) == (
        "multidict leaks 7.8 KiB/step since 6.3.0 (fixed in 6.3.2), in both variants; layer: native heap. "
        "multidict leaks 2.8 KiB/step since 6.5.0 (fixed in 6.6.4), when then is pop; layer: native heap."
    )


@pytest.mark.parametrize(
    ("history", "said"),
    [
        ("gggbbuugbb", "since 6.3.0 (fixed in a version after 6.3.1, 6.5.0 at the latest)"),
        ("gguubbgggg", "since a version after 6.1.0, 6.3.1 at the latest (fixed in 6.4.4)"),
        ("ubbggggggg", "in every version from 6.1.0, the oldest that can be judged (fixed in 6.3.0)"),
        ("ggbbbbbbuu", "since 6.2.0; layer"),
    ],
)  # fmt: skip
def test_no_version_is_named_that_was_not_looked_at(history: str, said: str) -> None:
    assert said in sentence(demo({"pop": history}))


def test_a_fix_that_only_some_variants_show_is_said_so() -> None:
    assert "since 6.3.0 (fixed in 6.4.4, where that is known), in both variants" in (
        sentence(demo({"pop": "gggbbbgggg", "read": "gggbbbuuuu"}))
    )


def test_a_repair_of_a_value_ends_what_was_bad_in_its_way() -> None:
    """A loss was NaN, then gone, then back: "no longer prints a number as `loss` up to 6 (fixed in 7)" was a fault
    beside "since 6 (fixed in 7)"."""
    ways = [
        ("nan", "first_bad", 1, 2), ("vanished", "first_bad", 4, 5), ("vanished", "first_fixed", 5, 6),
        ("nan", "first_fixed", 4, 6),
    ]  # fmt: skip
    found = [
        build.finding(
            build.MULTIDICT, build.HERE, VARIANTS[0], metric="metrics.loss", verdict=verdict, kind=kind,
            before=VERSIONS[before], after=VERSIONS[after],
        )
        for verdict, kind, before, after in ways
    ]  # fmt: skip
    told = [(one.begins and one.begins.verdict, one.since, one.until) for one in episodes_of(found, ORDER)]
    assert told == [("vanished", (4, 5), (5, 6)), ("nan", (1, 2), (4, 6))]
