"""Turns a matrix into a plan: which cells there are, in which order, and what running them can cost. Pure."""

from harness.plan.cells import including, make_plan, matches, variants
from harness.plan.explain import explain, most_launches, typical_launches
from harness.plan.lanes import choose_lanes
from harness.plan.pools import MachineSeen, machine_change, odd_ones, unlike

__all__ = [
    "MachineSeen",
    "choose_lanes",
    "explain",
    "including",
    "machine_change",
    "make_plan",
    "matches",
    "most_launches",
    "odd_ones",
    "typical_launches",
    "unlike",
    "variants",
]
