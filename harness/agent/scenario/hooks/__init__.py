"""Count the steps of an unmodified program, and read the numbers that it logs: one file for each framework.

Each file has `MODULES`, module name -> function(module, hook), called when the program has imported the module. It
changes the module so that `hook.mark()` is called after each step and `hook.log({name: number})` with what is logged.
The framework computes what it would without it.
"""

import functools
import numbers

from . import jax, keras, lightning, loggers, tf1, torch, transformers

STEPS = {
    "torch": torch.MODULES,
    "keras": keras.MODULES,
    "tf1": tf1.MODULES,
    "jax": jax.MODULES,
    "lightning": lightning.MODULES,
    "transformers": transformers.MODULES,
}
LOGS = (loggers.MODULES, keras.LOGS, lightning.LOGS, transformers.LOGS)


class Hook(object):
    """The functions that a framework's file calls. `kind`: the name of the framework."""

    def __init__(self, kind, mark, log):
        self.mark = functools.partial(mark, kind)
        self._log = log

    def log(self, values):
        """Note the numbers among `values`, a mapping; anything else in it is left out."""
        if hasattr(values, "items"):
            found = {}
            for name, value in list(values.items()):
                told = number(value)
                if isinstance(name, str) and told is not None:
                    found[name] = told
            if found:
                self._log(found)


def number(value):
    """Return a number, or a tensor of one number in the processor's memory, as a float or int; else None. A tensor of
    a GPU is not read: the program would wait for it."""
    if isinstance(value, numbers.Real):
        return value
    place = getattr(getattr(value, "device", None), "type", None)
    if place == "cpu" and getattr(value, "ndim", 1) == 0:
        return value.item()
    return None


def awaited(steps_are, ticker, log, note):
    """Return module name -> functions, for importing.Finder. `note(kind, module name)` tells what was changed."""
    chosen = STEPS if steps_are == "auto" else {steps_are: STEPS[steps_are]} if steps_are in STEPS else {}
    found = {}
    for kind, modules in list(chosen.items()) + [("log", modules) for modules in LOGS]:
        hook = Hook(kind, ticker.mark, log)
        for name, change in modules.items():
            found.setdefault(name, []).append(_changing(change, hook, functools.partial(note, kind, name)))
    return found


def _changing(change, hook, note):
    def changed(module):
        try:
            change(module, hook)
        except AttributeError:
            note(False)  # another version of the framework: it is said if no step is seen
            return
        note(True)

    return changed
