"""Frameworks that make the steps themselves.

A step is a batch of training of Lightning, as its callbacks see it; one of the own steps of Hugging Face's Trainer,
after gradient accumulation; a round of boosting of LightGBM and XGBoost, a call of a booster's `update`.
"""

from . import StepKind, after, argument

LIGHTNING = ("lightning.pytorch", "pytorch_lightning")


def _lightning(module, hook):
    def ran(args, kwargs):
        if argument(args, kwargs, 1, "hook_name") == "on_train_batch_end":
            hook.mark()

    after(module, "_call_callback_hooks", ran)


def _lightning_logs(module, hook):
    def logged(args, kwargs):
        hook.log(argument(args, kwargs, 1, "metrics"))

    after(getattr(module, "_LoggerConnector", None) or module.LoggerConnector, "log_metrics", logged)


def _trainer(module, hook):
    after(module.CallbackHandler, "on_step_end", lambda args, kwargs: hook.mark())


def _trainer_logs(module, hook):
    after(module.CallbackHandler, "on_log", lambda args, kwargs: hook.log(argument(args, kwargs, 4, "logs")))


def _booster(module, hook):
    after(module.Booster, "update", lambda args, kwargs: hook.mark())


STEPS = {
    "lightning": StepKind("a training batch", {package + ".trainer.call": _lightning for package in LIGHTNING}),
    "transformers": StepKind("a step of Trainer", {"transformers.trainer_callback": _trainer}),
    "lightgbm": StepKind("a round of boosting", {"lightgbm.basic": _booster}, grows=True),
    "xgboost": StepKind("a round of boosting", {"xgboost.core": _booster}, grows=True),
}
ALWAYS = {
    "transformers.trainer_callback": _trainer_logs,
    **{package + ".trainer.connectors.logger_connector.logger_connector": _lightning_logs for package in LIGHTNING},
}
