"""Hugging Face's Trainer: a step is one of its own steps (after gradient accumulation), as its callbacks see it."""

from .around import after, argument


def _steps(module, hook):
    after(module.CallbackHandler, "on_step_end", lambda args, kwargs: hook.mark())


def _logs(module, hook):
    after(module.CallbackHandler, "on_log", lambda args, kwargs: hook.log(argument(args, kwargs, 4, "logs")))


MODULES = {"transformers.trainer_callback": _steps}
LOGS = {"transformers.trainer_callback": _logs}
