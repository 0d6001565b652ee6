"""scikit-learn: a step is a call of `partial_fit`; one that it makes itself, as in StandardScaler.fit, is none."""

import functools
import sys
import types

from . import StepKind


def _base(module, hook):
    estimator, depth = module.BaseEstimator, [0]
    own = vars(estimator).get("__init_subclass__")

    def counted(method):
        @functools.wraps(method)
        def partial_fit(*args, **kwargs):
            depth[0] += 1
            try:
                result = method(*args, **kwargs)
            finally:
                depth[0] -= 1
            caller = sys._getframe(1)
            if caller.f_code.co_name == "<lambda>":  # of available_if
                caller = caller.f_back
            if not depth[0] and not caller.f_globals.get("__name__", "").startswith("sklearn."):
                hook.mark()
            return result

        return partial_fit

    def begin(cls, **kwargs):
        (super(estimator, cls).__init_subclass__ if own is None else own.__get__(None, cls))(**kwargs)
        method = vars(cls).get("partial_fit")
        if isinstance(method, types.FunctionType):
            cls.partial_fit = counted(method)
        elif hasattr(method, "fn"):  # of sklearn.utils.metaestimators.available_if: only some settings have it
            method.fn = counted(method.fn)

    estimator.__init_subclass__ = classmethod(begin)


STEPS = {"sklearn": StepKind("a call of partial_fit", {"sklearn.base": _base}, is_common=True)}
