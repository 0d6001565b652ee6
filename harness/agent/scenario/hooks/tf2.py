"""TensorFlow 2: a step is a call, outside all others, of a `tf.function` in whose trace a gradient was taken. Functions
of Keras and of TensorFlow's operations do not count: the batches of `fit` are steps of Keras."""

import functools

from .around import after

OF_LIBRARIES = ("tensorflow.python.ops.", "tensorflow.python.keras.", "tensorflow_core.python.", "keras.", "tf_keras.")
gradients = [0]  # taken so far, in any thread: a strategy traces its replicas in threads


def _count_calls(module, hook):
    function_class = module.Function
    if "_harness_trains" in vars(function_class):
        return  # both modules have the class
    function_class._harness_trains, context = False, module.context

    def flagging(original):
        @functools.wraps(original)
        def wrapped(self, *args, **kwargs):
            before = gradients[0]
            try:
                return original(self, *args, **kwargs)
            finally:
                if gradients[0] != before:
                    module_name = str(getattr(self.python_function, "__module__", ""))
                    self._harness_trains = not module_name.startswith(OF_LIBRARIES)

        return wrapped

    function_class.get_concrete_function = flagging(function_class.get_concrete_function)
    original = flagging(function_class.__call__)

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        if self._harness_trains and context.executing_eagerly():  # else it was traced in another
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
