"""Defines the exit codes of all commands."""

OK = 0
BAD = 1
"""Something is bad: a regression, a failed cell, or a difference between the compared places."""
USAGE = 2
"""A usage error: a wrong argument, an error in a matrix file, or a directory that does not hold a run."""
UNAVAILABLE = 3
"""Something that should have run could not, because of a host, an image or a full disk."""
UNDECIDED = 4
"""Nothing is bad, but something could not be decided, or a version prints a new error."""
OUR_BUG = 70
"""An error of the harness itself: EX_SOFTWARE of sysexits.h."""
INTERRUPTED = 130
"""Ctrl-C, SIGTERM or a lost terminal: 128 + SIGINT, as in shells."""
