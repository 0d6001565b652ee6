"""Derives the `end` of a trial, and its message, from how a process ended and what it printed. Pure."""

import re
import signal

AT_EXIT = "after the last step"
WELL = ("completed", "stopped")
STARVED = "the machine's memory ran out, although the trial was below its own limit: %s"
STACKS_SIGNAL = signal.SIGUSR2  # requests the stacks of all threads of the scenario process


def signal_name(number):
    """Return the name of a signal, such as `SIGSEGV`; `signal 63` if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def place_after(steps, budget):
    """Return where a process is that has made this many of its steps: `step 3`, or AT_EXIT after all of them."""
    return "step %d" % (steps + 1) if steps < budget else AT_EXIT


def of_death(death, place, in_setup, oom_killed, said=""):
    """Return (end, message) for a process that died by a signal or os._exit without reporting a failure.

    `place` says where it was, and `said` why it died, if it printed that. SIGKILL is sent from outside: by the kernel,
    for lack of memory, if the cgroup counted that, else by another process, which is no evidence about the image.
    """
    if death.signal == signal.SIGKILL and not oom_killed:
        return "infrastructure", "%s: killed by SIGKILL from outside, but the cgroup counted no OOM kill" % place
    end = "setup" if in_setup else "crash"
    if oom_killed:
        return ("setup" if in_setup else "oom"), "%s: out of memory: killed by the kernel" % place
    if death.signal is not None:
        how = "killed by %s" % signal_name(death.signal)
        how += ", as when /dev/shm is full: try a larger `shm_size`" if death.signal == signal.SIGBUS else ""
    else:
        how = "the process ended with exit code %d" % death.exit_code
    return end, ": ".join(filter(None, (place, how, said)))


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
        return "setup", ": ".join(filter(None, ("exit code 125: the command says that this cannot be tested", said)))
    return of_death(death, "command", False, oom_killed, said)


def of_command(death, steps, pattern, oom_killed, said):
    """Return (end, message) for a command that is measured.

    With a pattern, an end before the first step is `setup`; without one there are no steps, only samples.
    """
    before_first_step = pattern is not None and steps == 0
    if death.exit_code != 0:
        place = "after %s %d" % ("sample" if pattern is None else "step", steps)
        place = "before the first step" if before_first_step else place
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


def last_words(text, step=None):
    """Return the last meaningful line, "" if there is none; after a traceback, the line that names the exception.

    `step` is a pattern: lines that match it are progress, not a reason.
    """
    lines = [ORDERS.sub("", line).rstrip() for line in re.split(r"[\r\n]+", text)]
    lines = [line for line in lines if line.strip() and not (step and step.search(line))]
    return (_exception(lines[-NEAR_THE_END:]) or _boxed(lines) or (lines or [""])[-1]).strip()[:LONGEST]


def _boxed(lines):
    """Return the first line between two rules that end the output, as mpirun draws them, "" if there are none."""
    rules = [number for number, line in enumerate(lines) if RULE.match(line)]
    return lines[rules[-2] + 1] if len(rules) > 1 and rules[-1] == len(lines) - 1 else ""


def _exception(lines):
    """Return the first line after the frames of the last traceback; later lines continue the exception's text."""
    headers = [number for number, line in enumerate(lines) if HEADER in line]
    frames = lines[headers[-1] + 1 :] if headers else []
    return next((line for line in frames if not line[0].isspace()), "")
