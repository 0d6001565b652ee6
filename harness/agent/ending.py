"""From how a process ended to the `end` of a trial. Pure: numbers and words in, (end, message) out."""

import signal


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def of_death(death, place, in_setup, oom_killed):
    """For a process that ended by itself, without a word: a signal, or os._exit.

    `place` is where it was, in words. SIGKILL comes from outside: from the kernel for want of memory if the cgroup
    counted that, else from someone who says nothing about the image.
    """
    if death.signal == signal.SIGKILL and not oom_killed:
        return "infrastructure", "%s: killed by SIGKILL from outside, and the cgroup counted no OOM kill" % place
    end = "setup" if in_setup else "crash"
    if oom_killed:
        return ("setup" if in_setup else "oom"), "%s: out of memory: killed by the kernel" % place
    if death.signal is not None:
        return end, "%s: killed by %s" % (place, signal_name(death.signal))
    return end, "%s: the process ended with exit code %d" % (place, death.exit_code)


def of_failure(event, oom_killed):
    """For an exception that the scenario process told of. The kernel may have killed one of its workers."""
    if event["setup"]:
        return "setup", event["message"]
    return ("oom" if event["oom"] or oom_killed else "crash"), event["message"]


def of_judged_command(death, oom_killed):
    """For a command whose exit code alone decides, as `git bisect run` has it."""
    if death.exit_code == 0:
        return "completed", ""
    if death.exit_code == 125:
        return "setup", "exit code 125: the command says that this cannot be tested"
    return of_death(death, "command", False, oom_killed)


def of_command(death, steps, pattern, oom_killed):
    """For a command that is measured. With a pattern, nothing counts before its first step."""
    before_first_step = pattern is not None and steps == 0
    if death.exit_code != 0:
        place = "before the first step" if before_first_step else "after step %d" % steps
        return of_death(death, place, before_first_step, oom_killed)
    if before_first_step:
        return "setup", "the command ended, but no line of its output matched step_pattern %r" % pattern
    return "completed", ""
