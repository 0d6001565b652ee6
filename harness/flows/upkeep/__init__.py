"""Checks hosts (`doctor`), and removes what is left on them and old runs (`clean`)."""
