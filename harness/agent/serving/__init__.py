"""The client of a `serve` scenario: a process that sends requests to the server under test and times them."""

KEPT = "HARNESS_KEPT_"
"""Begins the names of the variables that the client's own interpreter must not see, and a load generator gets."""
GRACE_S = 10.0
"""Seconds that a server has to end after SIGTERM, before it is killed."""
