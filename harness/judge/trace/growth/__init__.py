"""Unlimited growth of one series: the rule, and the tests of which it consists."""
