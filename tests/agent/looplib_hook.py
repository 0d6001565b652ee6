"""looplib: a step is a call of `Loop.advance`."""

from . import Steps, after


def _loop(module, hook):
    after(module.Loop, "advance", lambda args, kwargs: hook.mark())


STEPS = {"looplib": Steps("a call of Loop.advance", {"looplib.core": _loop})}
