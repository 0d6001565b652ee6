"""Searches for the component at fault: decides on the fewest hybrids that identify and prove it. Pure.

    outcomes -> decide -> make and launch these hybrids -> outcomes -> decide -> ... -> conclude

`docs/narrow.md` describes the method and when it is right.
"""

from harness.narrow.search.component_search import ComponentSearch
from harness.narrow.search.search_records import NarrowRules, NextHybrids, NextKind, SearchCost, expected_cost

__all__ = ["ComponentSearch", "NarrowRules", "NextHybrids", "NextKind", "SearchCost", "expected_cost"]
