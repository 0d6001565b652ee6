"""LightGBM and XGBoost: a step is a round of boosting, a call of a booster's `update`."""

from .around import after


def _booster(module, hook):
    after(module.Booster, "update", lambda args, kwargs: hook.mark())


LIGHTGBM = {"lightgbm.basic": _booster}
XGBOOST = {"xgboost.core": _booster}
