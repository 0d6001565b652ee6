"""Encodes messages to the harness and splits output into lines. The package's docstring lists the messages."""

import collections
import json
import math
import os
import re
import select

LONGEST_LINE = 1 << 20  # bytes
TAIL_BYTES = 64 << 10
HEAD_BYTES = 16 << 10
MIDDLE_BYTES = 16 << 10
ROWS_A_CHUNK = 10000
BYTES_A_NUMBER = 24  # in JSON, at most
LINE_BYTES = 1000  # of each line in the middle
DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
HEX = re.compile(b"0x[0-9a-f]+|[0-9a-f]{8,}")
"""An address or a hash, in which digits are 0 already."""


def json_number(number):
    """Return a number for JSON: null for NaN and infinities; whole numbers without a fraction, others with 9 decimals
    and at least 7 digits: a residual may be tiny."""
    if number is None or not math.isfinite(number):
        return None
    if number == int(number):
        return int(number)
    return round(number, 9) if abs(number) >= 1e-3 else float("%.7g" % number)


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
        """Queue a message. Raises ValueError if a number is NaN or infinite."""
        line = json.dumps(dict(fields, type=kind), allow_nan=False).encode("ascii")
        # The leading newline ends an unfinished line of the image's output.
        self.pending += b"\n" + self._marker + b" " + line + b"\n"

    def flush(self):
        """Write all, and wait for a harness that reads slowly. Raises BrokenPipeError."""
        while self.pending:
            self.write_some()

    def write_some(self):
        """Write what is possible. Call it when the fd is writable: it then takes PIPE_BUF bytes without blocking."""
        written = os.write(self.fd, self.pending[: select.PIPE_BUF])
        del self.pending[:written]


class Lines(object):
    """Splits a stream of bytes into lines; only the first LONGEST_LINE bytes of a line are kept."""

    def __init__(self):
        self._rest = bytearray()

    def feed(self, data):
        """Return the lines that `data` completes."""
        *pieces, rest = data.split(b"\n")
        whole = []
        for piece in pieces:
            self._keep(piece)
            whole.append(bytes(self._rest))
            self._rest = bytearray()
        self._keep(rest)
        return whole

    def _keep(self, piece):
        self._rest += piece[: LONGEST_LINE - len(self._rest)]


class Output(object):
    """The scenario's output: its beginning, its end, one line of each form between them, as far as there is room, and
    the number of bytes after the first step. Lines of one form differ in numbers only."""

    def __init__(self):
        self.bytes = 0
        self.event_bytes = 0  # written by the scenario process to the supervisor as events
        self._head = b""
        self._last_parts = collections.deque()
        self._last_bytes = 0
        self._passed = 0  # bytes that are no longer among the last
        self._between = Lines()
        self._forms = set()
        self._kept = []
        self._room = MIDDLE_BYTES
        self._bytes_before_steps = None

    def add(self, data):
        """Record more output."""
        self.bytes += len(data)
        if len(self._head) < HEAD_BYTES:
            self._head += data[: HEAD_BYTES - len(self._head)]
        self._last_parts.append(data)
        self._last_bytes += len(data)
        while self._last_bytes - len(self._last_parts[0]) >= TAIL_BYTES:
            self._last_bytes -= len(self._last_parts[0])
            self._pass(self._last_parts.popleft())

    def _pass(self, data):
        """Keep the lines of data that follows the head, if they have new forms."""
        start = max(0, self._head.rfind(b"\n") + 1 - self._passed)
        self._passed += len(data)
        lines = self._between.feed(data[start:])
        forms = b"\n".join(lines).translate(DIGITS).split(b"\n")
        for line, form in zip(lines, forms):  # noqa: B905 (Python 3.10)
            if form not in self._forms:
                self._keep(line.rstrip(b"\r").rpartition(b"\r")[2][:LINE_BYTES])

    def _keep(self, line):
        """Keep a line as a terminal shows it, if its form is new and there is room."""
        if len(line) >= self._room:
            return
        form = HEX.sub(b"0", line.translate(DIGITS))
        if form not in self._forms:
            self._forms.add(form)
            self._kept.append(line)
            self._room -= len(line) + 1

    def _last(self):
        """Return the last parts, and where the whole lines of their last TAIL_BYTES begin; for a longer line, where its
        last TAIL_BYTES do."""
        last = b"".join(self._last_parts)
        start = max(0, len(last) - TAIL_BYTES)
        line = last.find(b"\n", start) + 1
        return last, line if self.bytes > TAIL_BYTES and 0 < line < len(last) else start

    def tail(self):
        """Return the whole lines of the last TAIL_BYTES as text; of a longer line, its end."""
        last, start = self._last()
        return last[start:].decode("utf-8", "replace")

    def stepped(self, is_whole=False):
        """Note that the first step is made; `is_whole`: it is the whole run."""
        self._bytes_before_steps = 0 if is_whole else self.bytes

    def fields(self):
        """Return the fields of `done`, once; output_bytes is null if no step was made."""
        last, start = self._last()
        if start:
            self._pass(last[:start])
        whole = self._head[: self._head.rfind(b"\n") + 1] if self.bytes > HEAD_BYTES else self._head
        return {
            "output_bytes": None if self._bytes_before_steps is None else self.bytes - self._bytes_before_steps,
            "output_head": (whole or self._head).decode("utf-8", "replace"),
            "output_middle": b"\n".join(self._kept).decode("utf-8", "replace"),
            "output_tail": last[start:].decode("utf-8", "replace"),
        }


def read_available(fd):
    """Return what can be read from a non-blocking fd now: None if there is nothing yet, b"" at its end."""
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return None
