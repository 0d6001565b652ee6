"""Checks hosts (`doctor`), and removes leftovers on them and old runs (`clean`)."""
