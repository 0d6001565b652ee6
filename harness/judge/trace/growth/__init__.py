"""Decides whether one series grows without limit: the rule, and the tests that it combines."""
