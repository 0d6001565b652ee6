"""torch: a step is a call of an optimizer's `step`."""

import functools

from . import StepKind


def _optimizer(module, hook):
    """Hook the steps of all optimizers: by the global hooks of torch 2, else through `Optimizer.__init__`."""
    running = []  # the optimizers whose step is running, by id: one may call another

    def before(optimizer, args, kwargs):
        if id(optimizer) in running:  # its step called itself again, or an earlier one raised
            del running[running.index(id(optimizer)) :]
        running.append(id(optimizer))

    def after(optimizer, args, kwargs):
        if id(optimizer) in running:
            del running[running.index(id(optimizer)) :]
            if not running:
                hook.mark()

    if hasattr(module, "register_optimizer_step_post_hook"):
        module.register_optimizer_step_pre_hook(before)
        module.register_optimizer_step_post_hook(after)
    else:
        _wrap_classes(module.Optimizer, before, after)


def _wrap_classes(base, before, after):
    """Wrap `step` of each class of optimizers when its first instance is made, as torch's own profiler does."""
    original = base.__init__

    @functools.wraps(original)
    def initialised(self, *args, **kwargs):
        original(self, *args, **kwargs)
        for kind in type(self).__mro__:
            step = kind.__dict__.get("step")
            if step is not None and kind is not base and not hasattr(step, "_harness_counts"):
                kind.step = _counted(step, before, after)

    base.__init__ = initialised


def _counted(step, before, after):
    @functools.wraps(step)
    def counted(self, *args, **kwargs):
        before(self, args, kwargs)
        result = step(self, *args, **kwargs)
        after(self, args, kwargs)
        return result

    counted._harness_counts = True
    return counted


STEPS = {"torch": StepKind("an optimizer's step", {"torch.optim.optimizer": _optimizer})}
