"""Explains why no step of a program was seen, or too few. Pure."""

import re

WAIT_S = 60.0  # in which a program must make its first step, unless it imports or compiles
STARTS = re.compile("importlib._bootstrap|compil|polymorphic_function|_dynamo|_inductor|triton|xla", re.IGNORECASE)

CALLS = {
    "torch": "an optimizer's step",
    "keras": "a batch of fit",
    "tf1": "a Session.run that trains",
    "jax": "a compiled function whose name says that it trains",
    "lightning": "a training batch",
    "transformers": "a step of Trainer",
}
OWN_PROCESS = "let it train in its own process"
OTHERS = "it ran other processes, and steps made in them are not counted: " + OWN_PROCESS
SHORT = "the program ended by itself after %d of %d steps; let it make more, or lower `budget`"
REPLACED = "no step was seen: the program replaced itself with another (os.exec), in which nothing can be counted"


def why_unseen(steps_are, hooked, elsewhere, others):
    """Return why no step was seen.

    `hooked`: framework -> whether its imported modules could be changed. `elsewhere`: the number of steps made in
    processes that the program forked. `others`: whether it ran other processes.
    """
    if elsewhere:
        return "%d steps were made in processes that it forked; %s" % (elsewhere, OWN_PROCESS)
    return "; ".join(filter(None, [_hooks(steps_are, hooked), OTHERS if others else ""]))


def _hooks(steps_are, hooked):
    if ":" in steps_are:
        module = steps_are.partition(":")[0]
        return "%s was not called" % steps_are if "function" in hooked else "%s was not imported" % module
    if not hooked:
        return "it did not import %s" % ("any known framework" if steps_are == "auto" else steps_are)
    unknown = sorted(kind for kind in hooked if not hooked[kind])
    if unknown:
        return "this version of %s is not known" % " and ".join(unknown)
    return "%s: none was made" % " or ".join(CALLS[kind] for kind in sorted(hooked) if kind in CALLS)


def is_starting(stacks):
    """Return whether a thread is importing or compiling, which may take minutes before the first step."""
    return STARTS.search(stacks) is not None
