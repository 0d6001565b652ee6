"""Derives the `end` of a trial, and its message, from how a process ended, what it printed, or what it raised."""

import os
import re
import signal
import traceback

AT_EXIT = "after the last step"
WELL = ("completed", "stopped")
MOST_OUTLIVING = 16  # processes that are named as still running after the end
STARVED = "the machine's memory ran out, although the trial was below its own limit: %s"
LOST = (
    "after step %d: the scenario closed the agent's own file descriptors, so it can report nothing more; it may close "
    "descriptors that it opened, but none from %d on"
)
SHORT = "the program ended by itself after %d of %d steps; let it make more, or lower `budget`"
LEFT = "the program ended by os._exit or in another program (os.exec), and no step was seen"
REPLACED = "no step was seen: the program replaced itself with another (os.exec), in which nothing can be counted"
UNSEEN = "the program ended, and no step was seen: "


def signal_name(number: int) -> str:
    """Return the name of a signal, such as `SIGSEGV`; `signal 63` if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def place_after(steps, budget):
    """Return where a process is that has made this many of its steps: `step 3`, or AT_EXIT after all of them."""
    return "step %d" % (steps + 1) if steps < budget else AT_EXIT


def before_steps(steps_are):
    """Return where a program is that has made no step; "" if nobody said that it makes any."""
    return "" if steps_are == "auto" else "before the first step"


def of_death(death, place, in_setup, oom_killed, said=""):
    """Return (end, message) for a process that died by a signal or os._exit without reporting a failure.

    `place` says where it was, and `said` why it died, if it printed that. SIGKILL is sent from outside: by the kernel,
    for lack of memory, if the cgroup counted that, else by another process, which is no evidence about the image.
    """
    if death.signal == signal.SIGKILL and not oom_killed:
        return "infrastructure", placed(place, "killed by SIGKILL, but the cgroup counted no OOM kill")
    end = "setup" if in_setup else "crash"
    if oom_killed:
        return ("setup" if in_setup else "oom"), placed(place, "out of memory: killed by the kernel")
    if death.signal is not None:
        how = "killed by %s" % signal_name(death.signal)
        how += ", as when /dev/shm is full: try a larger `shm_size`" if death.signal == signal.SIGBUS else ""
    else:
        how = "the process ended with exit code %d" % death.exit_code
    return end, placed(place, how, said)


def placed(*parts):
    """Return `step 3: killed by SIGSEGV: no room`, without the parts that are ""."""
    return ": ".join(filter(None, parts))


def is_bad(death):
    """Return whether a process that should have ended well did not."""
    return death.signal is not None or death.exit_code != 0


def of_failure(event, oom_killed):
    """Return (end, message) for an exception in the scenario process, whose cause may be a worker that the kernel
    killed."""
    if event["setup"]:
        return "setup", event["message"]
    return ("oom" if event["oom"] or oom_killed else "crash"), event["message"]


def of_judged_command(death, oom_killed, said):
    """Return (end, message) for a command whose exit code alone decides, as in `git bisect run`.

    `said`: the last line that it printed.
    """
    if death.exit_code == 0:
        return "completed", ""
    if death.exit_code == 125:
        return "setup", placed("exit code 125: the command says that this cannot be tested", said)
    return of_death(death, "command", False, oom_killed, said)


def of_command(death, steps, pattern, oom_killed, said):
    """Return (end, message) for a command that is measured.

    With a pattern, an end before the first step is `setup`; without one there are no steps, only samples.
    """
    before_first_step = pattern is not None and steps == 0
    if death.exit_code != 0:
        place = "" if pattern is None else "after step %d" % steps if steps else "before the first step"
        return of_death(death, place, before_first_step, oom_killed, said)
    if before_first_step:
        last = "; its last line is: %s" % said if said else "; it printed nothing"
        return "setup", "the command ended, and no step was seen: no line matches step_pattern %r%s" % (pattern, last)
    return "completed", ""


# ---------------------------------------------------------------- failure reason


LONGEST = 300
NEAR_THE_END = 10
HEADER = "Traceback (most recent call last)"
RULE = re.compile(r"[-=*_]{9,}\s*$")
# Colours and other terminal sequences, and control characters.
ORDERS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)|[\x00-\x08\x0e-\x1f\x7f-\x9f]")


def last_words(text: str, step: "re.Pattern[str] | None" = None) -> str:
    """Return the last meaningful line, "" if there is none; after a traceback, the line that names the exception.

    `step` is a pattern: lines that match it are progress, not a reason.
    """
    lines = [ORDERS.sub("", line).rstrip() for line in re.split(r"[\r\n]+", text)]
    lines = [line for line in lines if line.strip() and not (step and step.search(line))]
    return (_exception(lines[-NEAR_THE_END:]) or _boxed(lines) or (lines or [""])[-1]).strip()[:LONGEST]


def _boxed(lines: "list[str]") -> str:
    """Return the first line between two rules that end the output, as mpirun draws them, "" if there are none."""
    rules = [number for number, line in enumerate(lines) if RULE.match(line)]
    return lines[rules[-2] + 1] if len(rules) > 1 and rules[-1] == len(lines) - 1 else ""


def _exception(lines: "list[str]") -> str:
    """Return the first line after the frames of the last traceback; later lines continue the exception's text. IPython
    writes the exception's name before the header, too, and frames without a margin."""
    headers = [number for number, line in enumerate(lines) if HEADER in line]
    frames = lines[headers[-1] + 1 :] if headers else []
    before = lines[headers[-1]].partition(HEADER)[0].strip() if headers else ""
    name = before if before.isidentifier() else ""  # a log writes `ERROR:` there
    return next((line for line in frames if not line[0].isspace() and line.startswith(name)), "")


# ---------------------------------------------------------------- exceptions


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


class ProbeError(ScenarioError):
    """Raised if the scenario cannot be probed in this way; the text says why and what to do."""


class Missing(Exception):
    """Raised if the program that should run the scenario is not in the image."""


def is_oom(error):
    """Return whether the error reports that memory ran out, in the words of Python, TensorFlow, torch, JAX or CUDA."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return (
        isinstance(error, MemoryError) or bool(names & OOM_NAMES) or any(text in _text_of(error) for text in OOM_TEXTS)
    )


def line_of(function):
    """Return ` (table.py:12 in setup)`, the function's own line; "" if it is not written in Python."""
    code = getattr(function, "__code__", None)
    return " (%s:%d in %s)" % (os.path.basename(code.co_filename), code.co_firstlineno, code.co_name) if code else ""


def call(function, name, **params):
    """Return what a function of the script returns. Raises ProbeError with its line if the call itself fails."""
    try:
        return function(**params)
    except TypeError as error:
        if error.__traceback__.tb_next is not None:  # raised inside the function
            raise
        raise ProbeError("%s: %s%s" % (name, error, line_of(function))) from None


def describe_failure(error, where, script, else_place=""):
    """Return text that ends with `where: TypeName: message (script.py:12 in function)`; `where` may be "".

    `else_place` replaces the part in parentheses if no line of the scenario was reached, because it could not even be
    called. The memory of the failed frames is released first, so that enough is left to write the text.
    """
    if isinstance(error, ScenarioError):
        return placed(where, _text_of(error))
    try:
        return _described(error, where, script, else_place)
    except MemoryError:
        return placed(where, type(error).__name__)


def _described(error, where, script, else_place):
    trace = _without_ours(error.__traceback__)
    place = _frame_place(error, trace, script)
    traceback.clear_frames(error.__traceback__)
    last = placed(where, _headline(error) + (place or else_place))
    if not place:
        return last
    lines = "".join(traceback.format_exception(type(error), error, trace)).splitlines()
    text = "\n".join(lines[-MOST_LINES:])[-MOST_CHARACTERS:]
    if HEADER not in text:  # the beginning was cut off: mark the rest as a traceback
        text = "%s:\n  ...\n%s" % (HEADER, text)
    return text + "\n" + last


def _without_ours(trace):
    """Return the traceback from the first frame outside the agent; None if there is none."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(HERE + os.sep):
        trace = trace.tb_next
    return trace


def _headline(error):
    lines = [line.rstrip() for line in COLOUR.sub("", _text_of(error)).strip().splitlines()]
    name = type(error).__name__
    return "%s: %s" % (name, _with_reason(lines)[:1000]) if lines else name


def _with_reason(lines):
    """Return the first line, and the reason if that line only announces it, as in TensorFlow, Keras and torch."""
    others = [line for line in lines[1:] if line] if ANNOUNCES.search(lines[0]) else []
    reason = next((line for line in others if not ASIDE.match(line)), others[0] if others else "")
    return ("%s %s" % (lines[0], reason.strip())).strip()


def _text_of(error):
    try:
        return str(error)
    except Exception as problem:  # the scenario's own exception class may do anything
        return "(no text: its __str__ raised %s)" % type(problem).__name__


def _frame_place(error, trace, script):
    """Return ` (file:line in function)` of the innermost frame of the user's script, else of the innermost of all."""
    if isinstance(error, SyntaxError) and trace is None:
        return " (%s:%s)" % (os.path.basename(error.filename or script), error.lineno)
    frames = traceback.extract_tb(trace)
    frames = [frame for frame in frames if frame.filename == script] or frames
    if not frames:
        return ""
    innermost = frames[-1]
    return " (%s:%d in %s)" % (os.path.basename(innermost.filename), innermost.lineno, innermost.name)
