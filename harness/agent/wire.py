"""Encodes messages to the harness and splits output into lines. The package's docstring lists the messages."""

import collections
import json
import math
import os
import select

LONGEST_LINE = 1 << 20
TAIL_BYTES = 64 << 10
HEAD_BYTES = 16 << 10
ROWS_A_CHUNK = 10000
BYTES_A_NUMBER = 24


def tidy(number):
    """Return a number for JSON: null for NaN and infinities; whole numbers without a fraction."""
    if number is None or not math.isfinite(number):
        return None
    return int(number) if number == int(number) else round(number, 9)


def chunks(start, stop, columns):
    """Yield ranges of rows from start to stop, each small enough for one line."""
    rows = min(ROWS_A_CHUNK, LONGEST_LINE // (BYTES_A_NUMBER * (columns + 1)))
    for first in range(start, stop, rows):
        yield range(first, min(first + rows, stop))


class Outbox(object):
    """Queued messages to the harness, which may read slowly or never; sending never blocks."""

    def __init__(self, fd, marker):
        self.fd = fd
        self.pending = bytearray()
        self._marker = marker.encode("ascii")

    def send(self, kind, **fields):
        fields["type"] = kind
        line = json.dumps(fields, allow_nan=False).encode("ascii")
        # The leading newline ends an unfinished line of the image's output.
        self.pending += b"\n" + self._marker + b" " + line + b"\n"

    def write_some(self):
        """Write what is possible. Call it when the fd is writable: at least PIPE_BUF bytes then go without blocking."""
        written = os.write(self.fd, self.pending[: select.PIPE_BUF])
        del self.pending[:written]


class Lines(object):
    """Splits a stream of bytes into lines; of a line over the limit only the beginning is kept."""

    def __init__(self, ends=b"\n"):
        self._rest = bytearray()
        self._ends = ends

    def feed(self, data):
        if len(self._ends) > 1:
            for end in self._ends[1:]:
                data = data.replace(bytes([end]), self._ends[:1])
        pieces = data.split(self._ends[:1])
        whole = []
        for piece in pieces[:-1]:
            self._keep(piece)
            whole.append(bytes(self._rest))
            self._rest = bytearray()
        self._keep(pieces[-1])
        return whole

    def _keep(self, piece):
        self._rest += piece[: LONGEST_LINE - len(self._rest)]


class Tail(object):
    """The last TAIL_BYTES of what a process wrote."""

    def __init__(self):
        self._parts = collections.deque()
        self._size = 0

    def add(self, data):
        self._parts.append(data)
        self._size += len(data)
        while self._size - len(self._parts[0]) >= TAIL_BYTES:
            self._size -= len(self._parts.popleft())

    def text(self):
        return b"".join(self._parts)[-TAIL_BYTES:].decode("utf-8", "replace")


class Output(object):
    """The scenario's output: its beginning, its end, and the number of bytes after the first step."""

    def __init__(self):
        self.bytes = 0
        self.told = 0  # bytes written to the agent
        self.tail = Tail()
        self._head = b""
        self._first_step_at = None

    def add(self, data):
        self.bytes += len(data)
        self.tail.add(data)
        if len(self._head) < HEAD_BYTES:
            self._head += data[: HEAD_BYTES - len(self._head)]

    def stepped(self):
        """Note that the first step is made."""
        self._first_step_at = self.bytes

    def fields(self):
        """Return the fields of `done`; output_bytes is null if no step was made."""
        return {
            "output_bytes": None if self._first_step_at is None else self.bytes - self._first_step_at,
            "output_head": self._head.decode("utf-8", "replace"),
            "output_tail": self.tail.text(),
        }


def read_available(fd):
    """Return what a non-blocking fd has now: None if nothing is there yet, b"" at its end."""
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return None
