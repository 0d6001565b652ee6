"""Reads the numbers that a program passes to common loggers."""

from . import after, argument


def _wandb(module, hook):
    after(module.Run, "log", lambda args, kwargs: hook.log(argument(args, kwargs, 1, "data")))


def _tensorboard(module, hook):
    def added(args, kwargs):
        hook.log({argument(args, kwargs, 1, "tag"): argument(args, kwargs, 2, "scalar_value")})

    after(module.SummaryWriter, "add_scalar", added)


def _mlflow(module, hook):
    after(
        module,
        "log_metric",
        lambda args, kwargs: hook.log({argument(args, kwargs, 0, "key"): argument(args, kwargs, 1, "value")}),
    )
    after(module, "log_metrics", lambda args, kwargs: hook.log(argument(args, kwargs, 0, "metrics")))


ALWAYS = {
    "wandb.sdk.wandb_run": _wandb,
    "torch.utils.tensorboard.writer": _tensorboard,
    "tensorboardX.writer": _tensorboard,
    "mlflow.tracking.fluent": _mlflow,
}
