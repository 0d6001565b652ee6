"""Errors that a user can cause or meet. Each is one or two lines: where, what, and what to do.

`cli` turns them into an exit code (`exit_codes`); no other place ends the process.
"""

from __future__ import annotations

from harness import exit_codes


class HarnessError(Exception):
    """The base of all errors that are shown as a message, without a traceback."""

    exit_code = exit_codes.USAGE


class UsageError(HarnessError):
    """A wrong argument on the command line, or a run directory that is none."""


class MatrixError(HarnessError):
    """An error in a matrix file, or in what it names. The text starts with `file:line: key.path:`."""


class InfrastructureError(HarnessError):
    """Raised when something that should have run could not: no engine, no image, a lost connection, a full disk.

    Never bad and never good for the image under test.
    """

    exit_code = exit_codes.UNAVAILABLE


class EngineUnreachable(InfrastructureError):
    """A host's engine does not answer. All cells of the host are untested."""


class ImageUnavailable(InfrastructureError):
    """An image could not be pulled, built or installed. The cells of that image are untested."""


class Interrupted(HarnessError):
    """Ctrl-C or SIGTERM: everything started was removed; the next call resumes."""

    exit_code = exit_codes.INTERRUPTED
