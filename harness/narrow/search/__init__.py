"""Searches for the component: the fewest hybrids that name it, and its proof. Pure.

    outcomes -> decide -> make and launch what it says -> outcomes -> decide -> ... -> conclude

`docs/narrow.md` describes the method and when it is right.
"""

from harness.narrow.search.component_search import ComponentSearch
from harness.narrow.search.records import NarrowRules, NextHybrids, NextKind, SearchCost, expected_cost

__all__ = ["ComponentSearch", "NarrowRules", "NextHybrids", "NextKind", "SearchCost", "expected_cost"]
