"""Describes an exception of the scenario: its traceback, cut to the useful part, with the most useful line last."""

import os
import re
import traceback

from . import ending

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_LINES = 40
MOST_CHARACTERS = 8192
OOM_NAMES = {"ResourceExhaustedError", "OutOfMemoryError"}
OOM_TEXTS = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "RESOURCE_EXHAUSTED: Out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
COLOUR = re.compile("\033\\[[0-9;]*m")
ANNOUNCES = re.compile(r":$|^\d+ root error\(s\) found\.$|^Exception encountered when calling |^Caught \w+ in .*\.$")
ASIDE = re.compile(r"\s+(?!\s|\(0\))|.*:$|<stack trace|Node: |\d+ root error\(s\) found\.$")
"""Matches lines after such an announcement that give no reason, only the name of an operation or where it was made.
`  (0)` begins the first of several reasons."""


class ScenarioError(Exception):
    """An error that the agent itself finds in a scenario. Its text includes the line, if known."""


def is_oom(error):
    """Return whether the error reports that memory ran out, in the words of Python, TensorFlow, torch, JAX or CUDA."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, MemoryError) or bool(names & OOM_NAMES) or any(text in _text(error) for text in OOM_TEXTS)


def line_of(function):
    """Return ` (table.py:12 in setup)`, the function's own line; "" if it is not written in Python."""
    code = getattr(function, "__code__", None)
    return " (%s:%d in %s)" % (os.path.basename(code.co_filename), code.co_firstlineno, code.co_name) if code else ""


def describe_failure(error, where, script, else_place=""):
    """Return text that ends with `where: TypeName: message (script.py:12 in function)`.

    `else_place` replaces the part in parentheses if no line of the scenario was reached, because it could not even be
    called. The memory of the failed frames is released first, so that enough is left to write the text.
    """
    if isinstance(error, ScenarioError):
        return "%s: %s" % (where, _text(error))
    try:
        return _described(error, where, script, else_place)
    except MemoryError:
        return "%s: %s" % (where, type(error).__name__)


def _described(error, where, script, else_place):
    trace = _without_ours(error.__traceback__)
    place = _place(error, trace, script)
    traceback.clear_frames(error.__traceback__)
    last = "%s: %s%s" % (where, _headline(error), place or else_place)
    if not place:
        return last
    lines = "".join(traceback.format_exception(type(error), error, trace)).splitlines()
    text = "\n".join(lines[-MOST_LINES:])[-MOST_CHARACTERS:]
    if ending.HEADER not in text:  # the beginning was cut off: mark the rest as a traceback
        text = "%s:\n  ...\n%s" % (ending.HEADER, text)
    return text + "\n" + last


def _without_ours(trace):
    """Return the traceback from the first frame outside the agent; None if there is none."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(HERE + os.sep):
        trace = trace.tb_next
    return trace


def _headline(error):
    lines = [line.rstrip() for line in COLOUR.sub("", _text(error)).strip().splitlines()]
    name = type(error).__name__
    return "%s: %s" % (name, _with_reason(lines)[:1000]) if lines else name


def _with_reason(lines):
    """Return the first line, and the reason if that line only announces it, as in TensorFlow, Keras and torch."""
    others = [line for line in lines[1:] if line] if ANNOUNCES.search(lines[0]) else []
    reason = next((line for line in others if not ASIDE.match(line)), others[0] if others else "")
    return ("%s %s" % (lines[0], reason.strip())).strip()


def _text(error):
    try:
        return str(error)
    except Exception as problem:  # the scenario's own exception class may do anything
        return "(no text: its __str__ raised %s)" % type(problem).__name__


def _place(error, trace, script):
    """Return ` (file:line in function)` of the innermost frame of the user's script, else of the innermost of all."""
    if isinstance(error, SyntaxError) and trace is None:
        return " (%s:%s)" % (os.path.basename(error.filename or script), error.lineno)
    frames = traceback.extract_tb(trace)
    frames = [frame for frame in frames if frame.filename == script] or frames
    if not frames:
        return ""
    innermost = frames[-1]
    return " (%s:%d in %s)" % (os.path.basename(innermost.filename), innermost.lineno, innermost.name)
