"""Defines the errors that users can cause or encounter. Each message is one or two lines: the place, the problem, and
what to do.

Only `cli` ends the process: it turns an error into an exit code (`exit_codes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from harness import exit_codes


class HarnessError(Exception):
    """The base of all errors that are shown as a message, without a traceback.

    `str()` is the whole message: `place`, such as a line and a key of the matrix file, and `text`, the problem and its
    remedy.
    """

    exit_code = exit_codes.USAGE

    def __init__(self, text: str, *, place: object = "") -> None:
        super().__init__(text)
        self.text, self.place = text, str(place)

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text

    def text_at(self, place: object) -> str:
        """Return the message for a reader who knows `place`: the text alone if the error is at or below that place."""
        return self.text if self.place.startswith(str(place)) else str(self)


class UsageError(HarnessError):
    """Raised for a wrong argument on the command line, or for a directory that does not hold a run."""


class MatrixError(HarnessError):
    """Raised for an error in a matrix file, or in a file it names. Its place is `file:line: key.path`, of the `key`."""

    def __init__(self, text: str, *, place: object = "", key: tuple[str | int, ...] = ()) -> None:
        super().__init__(text, place=place)
        self.key = key
        self.errors: tuple[MatrixError, ...] = (self,)


class MatrixErrors(MatrixError):
    """Raised for all errors of a matrix file together, in order of line. The message has a line for each."""

    def __init__(self, errors: Iterable[MatrixError]) -> None:
        every = tuple(errors)
        super().__init__("\n".join(dict.fromkeys(error.text for error in every)))
        self.errors = every

    def __str__(self) -> str:
        return "\n".join(dict.fromkeys(map(str, self.errors)))


class InfrastructureError(HarnessError):
    """Raised when something that should have run could not: no engine, no image, a lost connection, a full disk.

    It says nothing about the image under test, neither good nor bad.
    """

    exit_code = exit_codes.UNAVAILABLE


class Undecided(HarnessError):
    """Raised when nothing is bad, but nothing can be compared either."""

    exit_code = exit_codes.UNDECIDED


class EngineUnreachable(InfrastructureError):
    """Raised when a host's engine does not answer. All cells of the host are untested."""


class ImageUnavailable(InfrastructureError):
    """Raised when an image cannot be pulled, built or installed. The cells of that image are untested."""


UNSTARTED = "interrupted before anything was started"


class Interrupted(HarnessError):
    """Raised after Ctrl-C or SIGTERM. Everything that was started has been removed, and the next call resumes."""

    exit_code = exit_codes.INTERRUPTED


@contextmanager
def named_place(place: str, key: str = "") -> Iterator[None]:
    """Give an InfrastructureError of the `with` block this place in the matrix and this key, unless it has a place."""
    try:
        yield
    except InfrastructureError as error:
        if error.place:
            raise
        raise type(error)(error.text, place=f"{place}{key}") from error


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an error followed by its causes (`__cause__`, else `__context__`), each once."""
    chain = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    return chain


def did_you_mean(*names: str, known: Iterable[str]) -> str:
    """Return the text between a complaint and the list of allowed names: `;` or `; did you mean 'gpus'?`."""
    near = nearest(*names, known=known)
    return ";" if near is None else f"; did you mean {near!r}?"


def nearest(*names: str, known: Iterable[str]) -> str | None:
    """Return the known name that is closest to one of `names`, tried in order; None if none is close."""
    choices = list(known)[:1000]
    close = (match for name in names for match in get_close_matches(name[:100], choices, n=1))
    return next(close, None)
