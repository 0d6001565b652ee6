"""Matrix -> Plan: which cells there are, in which order, and what running them can cost. Pure."""

from harness.plan.cells import make_plan, matches, variants
from harness.plan.explain import Explanation, HostCost, explain
from harness.plan.record import to_json

__all__ = ["Explanation", "HostCost", "explain", "make_plan", "matches", "to_json", "variants"]
