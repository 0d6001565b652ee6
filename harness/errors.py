"""Defines the errors that a user can cause or meet. Each is one or two lines: where, what, and what to do.

`cli` turns them into an exit code (`exit_codes`); no other place ends the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

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


@contextmanager
def named_place(place: str, key: str = "") -> Iterator[None]:
    """Let an InfrastructureError of the block begin with the place in the matrix, and the key there, if it does not."""
    try:
        yield
    except InfrastructureError as error:
        if str(error).startswith(place):
            raise
        raise type(error)(f"{place}{key}: {error}") from error


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an error and the errors that led to it, the outermost first, each once."""
    chain = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    return chain


def did_you_mean(*names: str, known: Iterable[str]) -> str:
    """Return the link between a complaint and the list of what is allowed: `;` or `; did you mean 'gpus'?`."""
    near = nearest(*names, known=known)
    return ";" if near is None else f"; did you mean {near!r}?"


def nearest(*names: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like the first of `names` that is like any; None if there is none."""
    choices = list(known)[:1000]
    close = (match for name in names for match in get_close_matches(name[:100], choices, n=1))
    return next(close, None)
