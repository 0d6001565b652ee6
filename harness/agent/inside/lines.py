"""Measures the memory and time of each line of a function, as memory_profiler and line_profiler do.

The function is the script's `profile` (a function, or several in a list), else the step itself. Reading memory at
every line takes time, so memory is read in the odd steps and time in the even ones.
"""

import functools
import inspect
import json
import os
import sys
import threading
import time

from ..ending import ProbeError
from ..probes import memory


class LineTables(object):
    """Follows the profiled functions line by line, in all threads started by Python."""

    def __init__(self, module, step, params):
        profiled, what = (module.profile, "profile") if hasattr(module, "profile") else (step, "the step")
        functions = profiled if isinstance(profiled, (list, tuple)) else [profiled]
        if not functions:
            raise ProbeError("lines: profile is empty; name a function of the script" + _script_of(module))
        self._sources = {_code(function, what, module): _source(function, what, module) for function in functions}
        self._resident_kib, _ = memory.resident_readers()
        self.memory = Ledger(self._resident_kib)
        self.time = Ledger(time.perf_counter)

    def wrap(self, step):
        """Return a step that follows the lines: memory in odd steps, time in even ones."""
        number = 0

        def followed():
            nonlocal number
            number += 1
            trace = follower(self._sources, self.memory if number % 2 else self.time)
            threading.settrace(trace)
            sys.settrace(trace)
            try:
                return step()
            finally:
                sys.settrace(None)
                threading.settrace(None)

        return followed

    def files(self):
        """Return {file name: text}: the table of each function."""
        tables = [self._table(code, *source) for code, source in self._sources.items()]
        return {"lines.json": json.dumps({"functions": tables})}

    def _table(self, code, source, first):
        lines = [self._row(code, first + offset, text.rstrip("\n")) for offset, text in enumerate(source)]
        return {"name": code.co_name, "file": code.co_filename, "first_line": first, "lines": lines}

    def _row(self, code, number, text):
        grown_kib, memory_hits, resident_kib = self.memory.of(code, number)
        time_s, time_hits, _ = self.time.of(code, number)
        return {
            "line": number, "text": text, "mem_kib": resident_kib, "increment_kib": grown_kib,
            "occurrences": memory_hits, "hits": time_hits, "time_s": time_s,
        }  # fmt: skip


def _code(function, what, module):
    """Return the code object that a call of the function runs; for a callable object, that of `__call__`.

    `what` names the function in the error. Raises ProbeError.
    """
    inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    if callable(inner):
        code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
        if code is not None:
            return code
    text = "lines: %s is not a function written in Python: %.80r; let profile name one of the script" % (what, function)
    raise ProbeError(text + _script_of(module))


def _source(function, what, module):
    """Return (the function's lines of text, the number of the first line). Raises ProbeError."""
    code = _code(function, what, module)
    try:
        return inspect.getsourcelines(code)
    except OSError:
        text = "lines: the source of %s is in no existing file: %s" % (code.co_name, code.co_filename)
        raise ProbeError(text + _script_of(module)) from None


def _script_of(module):
    return " (%s)" % os.path.basename(module.__file__)


class Ledger(object):
    """The rises of a reading over each line: their sum, their number, and the last reading after that line."""

    def __init__(self, read):
        self.read = read
        self._sums = {}

    def add(self, place, risen, reading):
        """Record the rise of the reading across the line at `place`, (code, line number), and the reading after that
        line.
        """
        entry = self._sums.setdefault(place, [0.0, 0, 0.0])
        entry[0] += risen
        entry[1] += 1
        entry[2] = reading

    def of(self, code, line):
        """Return (sum, number, last reading) of a line."""
        return self._sums.get((code, line), (0.0, 0, None))


def follower(codes, ledger):
    """Return a trace function for sys.settrace that records what happens between the lines of `codes`."""
    read, add = ledger.read, ledger.add

    def enter(frame, event, argument):
        if frame.f_code not in codes:
            return None
        code, line, before = frame.f_code, None, 0.0

        def follow(frame, event, argument):
            nonlocal line, before
            if event in ("line", "return"):
                now = read()
                if line is not None:
                    add((code, line), now - before, now)
                line = frame.f_lineno if event == "line" else None
                before = read()
            return follow

        return follow

    return enter
