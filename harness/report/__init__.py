"""Reports: pure functions of a RunResult."""
