"""Whatever the causes are, and whatever cannot be made, each claim holds against all subsets of the groups."""

from __future__ import annotations

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.narrow.records import Culprit, Hybrid
from harness.narrow.search import ComponentSearch
from tests.nightly import many
from tests.players.narrowing import Groups, MadeVersions, groups, holds

COUNT = 10
EVERYTHING = frozenset(f"g{each}" for each in range(COUNT))
NAMES = st.sampled_from(sorted(EVERYTHING))
CAUSES = st.lists(st.frozensets(NAMES, min_size=1, max_size=3), min_size=1, max_size=3)


def refuser(share: float, seed: int):  # type: ignore[no-untyped-def]
    """Return a function that refuses a share of all combinations, always the same ones."""

    def refuses(hybrid: Hybrid) -> bool:
        text = f"{seed} {sorted(hybrid.from_b)} {sorted(hybrid.sham)}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") < share * 2**32

    return refuses


def minimal(causes: list[Groups]) -> list[Groups]:
    return [one for one in causes if not any(other < one for other in causes)]


def is_true(culprit: Culprit, causes: list[Groups]) -> bool:
    """Return whether the claim of a culprit's kind is true."""
    is_bad = holds(*causes)
    relevant = frozenset().union(*minimal(causes))
    if not all(set(part) & relevant for part in culprit.parts):
        return False
    enough = is_bad(frozenset(culprit.groups))
    needed = [not is_bad(EVERYTHING - set(part)) for part in culprit.parts]
    if culprit.kind in ("culprit", "together"):
        return enough and all(needed)
    if culprit.kind == "needed":
        return all(needed)
    return enough if culprit.kind == "enough" else True


@settings(max_examples=many(10, 500))
@given(causes=CAUSES, share=st.sampled_from([0.0, 0.0, 0.1, 0.3, 0.6, 1.0]), seed=st.integers(0, 1000))
def test_no_claim_is_wrong(causes: list[Groups], share: float, seed: int) -> None:
    made = MadeVersions(groups=groups(COUNT), is_bad=holds(*causes), refuses=refuser(share, seed))
    found = made.narrowed()
    assert found.verdict in ("found", "undecided")
    assert all(is_true(each, causes) for each in found.culprits), found.culprits


@settings(max_examples=many(12, 250))
@given(causes=CAUSES)
def test_everything_that_matters_is_named_or_left_open(causes: list[Groups]) -> None:
    """If nothing is refused, a cause is complete, and B without the named groups is good unless the
    rest is left open.
    """
    found = MadeVersions(groups=groups(COUNT), is_bad=holds(*causes)).narrowed()
    named = frozenset(group for each in found.culprits for group in each.groups)
    assert found.culprits
    assert any(cause <= named for cause in causes)
    if not found.open:
        assert not holds(*causes)(EVERYTHING - named)


@settings(max_examples=many(8, 120))
@given(causes=CAUSES, share=st.sampled_from([0.0, 0.3]), seed=st.integers(0, 1000), cut=st.floats(0, 1))
def test_a_search_that_goes_on_from_a_journal_ends_as_one_that_was_never_cut(
    causes: list[Groups], share: float, seed: int, cut: float
) -> None:
    made = MadeVersions(groups=groups(COUNT), is_bad=holds(*causes), refuses=refuser(share, seed))
    whole = made.narrowed()
    again = MadeVersions(groups=groups(COUNT), is_bad=holds(*causes), refuses=refuser(share, seed))
    again.outcomes = made.outcomes[: int(cut * len(made.outcomes))]
    assert again.narrowed().culprits == whole.culprits
    assert ComponentSearch(made.groups, made.rules).decide(made.outcomes).kind == "done"
    assert len(whole.hybrids) <= made.rules.most_hybrids
