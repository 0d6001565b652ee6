"""Faults, kills and damaged input at random: tests of `make nightly`.

`python -m benchmarks.campaign` does by hand, for as long as one likes, what `sweeps` and `fuzz` hold.
"""
