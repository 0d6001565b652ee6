"""Implements `demo`, `try`, `init` and `new-scenario`, and writes their matrix files."""
