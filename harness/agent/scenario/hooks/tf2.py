"""TensorFlow 2: a step is a call, outside all others, of a `tf.function` in whose trace a gradient was taken. Functions
of Keras do not count: the batches of `fit` are steps of Keras."""

import functools

from .around import after

OF_KERAS = ("keras.", "tf_keras.", "tensorflow.python.keras.", "tensorflow_core.python.keras.")
gradients = [0]  # that were taken so far


def _count_calls(module, hook):
    function_class = getattr(module, "Function", None)
    if function_class is None or "_harness_trains" in vars(function_class):
        return  # TensorFlow 1.13, or the other module that has the class
    function_class._harness_trains, original, context = False, function_class.__call__, module.context

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        before = gradients[0]
        result = original(self, *args, **kwargs)
        if gradients[0] != before:
            self._harness_trains = True
        is_of_keras = str(self.python_function.__module__).startswith(OF_KERAS)
        if self._harness_trains and not is_of_keras and context.executing_eagerly():  # else it was traced in another
            hook.mark_named(str(self._name))
        return result

    function_class.__call__ = call


def _count_gradients(module, hook):
    def count(args, kwargs):
        gradients[0] += 1

    after(module.GradientTape, "gradient", count)


MODULES = {
    "tensorflow.python.eager.polymorphic_function.polymorphic_function": _count_calls,
    "tensorflow.python.eager.def_function": _count_calls,  # until TensorFlow 2.10
    "tensorflow.python.eager.backprop": _count_gradients,
}
