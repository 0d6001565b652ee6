"""Lightning: a step is a batch of training, as its callbacks see it; the numbers are those that reach its loggers."""

from .around import after, argument

PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _hooks(module, hook):
    def ran(args, kwargs):
        if argument(args, kwargs, 1, "hook_name") == "on_train_batch_end":
            hook.mark()

    after(module, "_call_callback_hooks", ran)


def _connector(module, hook):
    def logged(args, kwargs):
        hook.log(argument(args, kwargs, 1, "metrics"))

    after(getattr(module, "_LoggerConnector", None) or module.LoggerConnector, "log_metrics", logged)


MODULES = {package + ".trainer.call": _hooks for package in PACKAGES}
LOGS = {package + ".trainer.connectors.logger_connector.logger_connector": _connector for package in PACKAGES}
