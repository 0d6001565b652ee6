"""looplib: a step is a call of `Loop.advance`."""

from . import StepKind, after


def _loop(module, hook):
    after(module.Loop, "advance", lambda args, kwargs: hook.mark())


STEPS = {"looplib": StepKind("a call of Loop.advance", {"looplib.core": _loop})}
