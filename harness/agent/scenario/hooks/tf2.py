"""TensorFlow 2: a step is a call of a `tf.function` whose name says that it trains, or a gradient that is taken outside
all functions, whichever comes first. Inside a function, others are traced, not run. Functions of TensorFlow and Keras
do not count: the batches of `fit` are steps of Keras."""

import functools
import sys

from .around import TRAINS, after

LIBRARIES = {"tensorflow", "keras", "tf_keras"}


def _function(module, hook):
    kind = module.Function
    if "_harness_steps" in kind.__dict__:
        return  # both modules have the class
    kind._harness_steps, original = True, kind.__call__

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        function = self.python_function
        name, library = getattr(function, "__name__", ""), getattr(function, "__module__", "").partition(".")[0]
        if TRAINS.search(name) and library not in LIBRARIES:
            _mark(name, hook)
        return result

    kind.__call__ = call


def _tape(module, hook):
    after(module.GradientTape, "gradient", lambda args, kwargs: _mark("gradient", hook))


def _mark(name, hook):
    if sys.modules["tensorflow.python.eager.context"].executing_eagerly():
        hook.mark_named(name)


MODULES = {
    "tensorflow.python.eager.polymorphic_function.polymorphic_function": _function,
    "tensorflow.python.eager.def_function": _function,  # until TensorFlow 2.10
    "tensorflow.python.eager.backprop": _tape,
}
