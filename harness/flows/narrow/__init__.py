"""Implements `harness narrow`: the question, its two sides, and the search for the component."""
