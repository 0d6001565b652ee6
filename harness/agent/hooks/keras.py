"""Keras: a step is a batch of `fit`, as its callbacks see it; the numbers are those of an epoch's end."""

from .around import after, argument

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
    if hasattr(kind, "_call_batch_hook"):  # TensorFlow 1.15 calls only this one

        def called(args, kwargs):
            if argument(args, kwargs, 1, "mode") == "train" and argument(args, kwargs, 2, "hook") == "end":
                hook.mark()

        after(kind, "_call_batch_hook", called)
    else:
        after(kind, "on_train_batch_end", lambda args, kwargs: hook.mark())


def _epochs(module, hook):
    after(module.CallbackList, "on_epoch_end", lambda args, kwargs: hook.log(argument(args, kwargs, 2, "logs")))


MODULES = dict.fromkeys((THREE, *OTHERS), _batches)
LOGS = dict.fromkeys((THREE, *OTHERS), _epochs)
