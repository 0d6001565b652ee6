"""Counts the steps of an unmodified program and reads the numbers that it logs, with one file for each framework.

Each file has `MODULES`: module name -> function(module, hook), called once the program has imported the module. The
function changes the module so that `hook.mark()` is called after each step, and `hook.log({name: number})` with the
logged numbers. What the framework computes stays the same. `ranks` tells where a process waits for others, and how it
fails.
"""

import functools
import numbers

from . import boosting, jax, keras, lightning, loggers, ranks, sklearn, tf1, tf2, torch, transformers

STEPS = {
    "torch": torch.MODULES,
    "keras": keras.MODULES,
    "tf1": tf1.MODULES,
    "tf2": tf2.MODULES,
    "jax": jax.MODULES,
    "lightning": lightning.MODULES,
    "transformers": transformers.MODULES,
    "lightgbm": boosting.LIGHTGBM,
    "xgboost": boosting.XGBOOST,
    "sklearn": sklearn.MODULES,
}
MAY_MAKE_NONE = {"log", "sklearn"}
"""What most programs import without making a step of it, so that their lines may be steps."""
LOGS = (loggers.MODULES, keras.LOGS, lightning.LOGS, transformers.LOGS, ranks.MODULES)


class Hook(object):
    """The functions that a framework's file calls. `kind`: the name of the framework. `waiting(call)` calls a function
    that waits for other ranks; `failed(error)` reports an exception that ends a process, None if it ends well.
    `mark_named(name)` marks a step of a function; only the first name counts, because the others are of helpers."""

    def __init__(self, kind, ticker, log, failed):
        self.mark = functools.partial(ticker.mark, kind)
        self.waiting, self.failed = ticker.waiting, failed
        self._log, self._named = log, None

    def mark_named(self, name):
        self._named = self._named or name
        if name == self._named:
            self.mark()

    def log(self, values):
        """Log the numbers in `values`, if it is a mapping; anything else in it is left out."""
        if hasattr(values, "items"):
            logged = {name: as_number(value) for name, value in list(values.items()) if isinstance(name, str)}
            logged = {name: value for name, value in logged.items() if value is not None}
            if logged:
                self._log(logged)


def as_number(value):
    """Return a number, or the number in a tensor of one number in the processor's memory, as a float or int; else None.
    A tensor on a GPU is not read, because the program would wait for it."""
    if isinstance(value, numbers.Real):
        return value
    place = getattr(getattr(value, "device", None), "type", None)
    if place == "cpu" and getattr(value, "ndim", 1) == 0:
        return value.item()
    return None


def modules(steps_are):
    """Return the names of all modules that are changed."""
    kinds = [STEPS[kind] for kind in STEPS if steps_are in ("auto", kind)]
    return sorted({name for changes in (*kinds, *LOGS) for name in changes})


def awaited(steps_are, ticker, log, note, failed):
    """Return module name -> functions, for importing.Finder.

    `note(kind, changed)` is called after a module was imported; `changed`: whether it could be changed.
    """
    chosen = [kind for kind in STEPS if steps_are in ("auto", kind)]
    functions = {}
    for kind, modules in [(kind, STEPS[kind]) for kind in chosen] + [("log", modules) for modules in LOGS]:
        hook = Hook(kind, ticker, log, failed)
        for name, change in modules.items():
            functions.setdefault(name, []).append(_changing(change, hook, functools.partial(note, kind)))
    return functions


def _changing(change, hook, note):
    def changed(module):
        try:
            change(module, hook)
        except AttributeError:
            note(False)  # an unknown version of the framework; the message says so if no step is seen
            return
        note(True)

    return changed
