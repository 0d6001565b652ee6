"""JAX: a step is a call, outside all compiled functions, of a compiled function whose name says that it trains."""

import functools
import re
import sys

from . import Counted, StepKind

TRAINS = re.compile("train|update|step|fit", re.IGNORECASE)


def _api(module, hook):
    """Make `jax.jit` return functions that are counted. Inside a compiled function they are traced, not run."""
    is_outside, original = _outside(), module.jit

    def count(name):
        if is_outside():
            hook.mark_named(name)

    @functools.wraps(original)
    def jit(*args, **kwargs):
        if not args and "fun" not in kwargs:  # a decorator with settings
            return functools.partial(jit, **kwargs)
        made = original(*args, **kwargs)
        name = getattr(made, "__name__", "")
        if not callable(made) or not TRAINS.search(name):
            return made
        return Counted(made, functools.partial(count, name))

    module.jit = jit


def _outside():
    """Return a function that returns whether no function is being traced."""
    core = sys.modules.get("jax._src.core")
    return getattr(core, "trace_state_clean", None) or (lambda: True)


STEPS = {"jax": StepKind("a compiled function whose name says that it trains", {"jax._src.api": _api})}
