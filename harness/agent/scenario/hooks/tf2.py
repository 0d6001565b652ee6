"""TensorFlow 2: a step is a call, outside all others, of a `tf.function` whose name says that it trains. Those of
TensorFlow and Keras do not count: the batches of `fit` are steps of Keras."""

import functools
import sys

from .around import counter

NAMES = (
    "tensorflow.python.eager.polymorphic_function.polymorphic_function",
    "tensorflow.python.eager.def_function",  # until TensorFlow 2.10
)
LIBRARIES = {"tensorflow", "keras", "tf_keras"}


def _function(module, hook):
    kind = module.Function
    if "_harness_steps" in kind.__dict__:
        return  # both modules have the class
    kind._harness_steps = True
    count, original = counter(hook, _is_outside), kind.__call__

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        function = self.python_function
        if getattr(function, "__module__", "").partition(".")[0] not in LIBRARIES:
            count(getattr(function, "__name__", ""))
        return result

    kind.__call__ = call


def _is_outside():
    """Return whether no function is being traced."""
    return not sys.modules["tensorflow.python.framework.ops"].inside_function()


MODULES = dict.fromkeys(NAMES, _function)
