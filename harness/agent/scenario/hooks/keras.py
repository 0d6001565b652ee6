"""Keras: a step is a batch of `fit`, as its callbacks see it; the numbers are those logged at the end of an epoch."""

import functools

from . import StepKind, after, argument

THREE = "keras.src.callbacks.callback_list"
OTHERS = (
    "keras.src.callbacks",  # Keras 2.13 to 2.15
    "tf_keras.src.callbacks",
    "keras.callbacks",
    "keras.callbacks.callbacks",
    "tensorflow.python.keras.callbacks",
    "tensorflow_core.python.keras.callbacks",
)


def _batches(module, hook):
    kind = module.CallbackList
    if "_harness_steps" in kind.__dict__:
        return  # Keras 3 has the class in two modules
    kind._harness_steps = running = []

    def once(name, counts):
        """Count a step after the outermost call, because one of the two wrapped methods may call the other."""
        original = getattr(kind, name)

        @functools.wraps(original)
        def wrapped(*args, **kwargs):
            running.append(name)
            try:
                result = original(*args, **kwargs)
            finally:
                running.pop()
            if not running and counts(args, kwargs):
                hook.mark()
            return result

        setattr(kind, name, wrapped)

    once("on_train_batch_end", lambda args, kwargs: True)
    if hasattr(kind, "_call_batch_hook"):  # TensorFlow 1.15 calls it alone
        once("_call_batch_hook", _is_end_of_training_batch)


def _is_end_of_training_batch(args, kwargs):
    return argument(args, kwargs, 1, "mode") == "train" and argument(args, kwargs, 2, "hook") == "end"


def _epochs(module, hook):
    if "_harness_logs" not in module.History.__dict__:
        module.History._harness_logs = True
        after(module.History, "on_epoch_end", lambda args, kwargs: hook.log(argument(args, kwargs, 2, "logs")))


STEPS = {"keras": StepKind("a batch of fit", dict.fromkeys((THREE, *OTHERS), _batches))}
ALWAYS = dict.fromkeys(("keras.src.callbacks.history", *OTHERS), _epochs)
