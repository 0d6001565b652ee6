"""Defines the exit codes of all commands."""

OK = 0
BAD = 1
"""Something is bad: a regression, a failed cell, or a difference between the compared places."""
USAGE = 2
"""Wrong usage: an argument, a matrix file, a directory that is not a run's."""
UNAVAILABLE = 3
"""Something that should have run could not: a host, an image, a full disk."""
UNDECIDED = 4
"""Nothing is bad, and something could not be decided."""
OUR_BUG = 70
"""An error of the harness itself: EX_SOFTWARE of sysexits.h."""
INTERRUPTED = 130
"""Ctrl-C, SIGTERM or a lost terminal: 128 + SIGINT, as shells have it."""
