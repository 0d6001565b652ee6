"""Decides whether one series grows without limit: the rule, and the tests of which it consists."""
