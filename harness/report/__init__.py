"""Makes all reports, which are pure functions of a RunResult."""
