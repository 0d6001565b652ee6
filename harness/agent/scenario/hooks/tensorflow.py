"""TensorFlow.

In TensorFlow 1, and its interface in 2, a step is a `Session.run` of an op that trains, or that depends on one. In
TensorFlow 2, a step is a call, outside all others, of a `tf.function` in whose trace a gradient was taken. Functions of
Keras and of TensorFlow's operations do not count: the batches of `fit` are steps of Keras.
"""

import functools

from . import StepKind, after, argument

NAMES = ("tensorflow.python.client.session", "tensorflow_core.python.client.session")
TRAINS = "train_op"  # the collection to which Optimizer.apply_gradients adds its op
MOST_KNOWN = 1000


def _session(module, hook):
    known = {}  # (graph, name of what is fetched) -> whether it trains, which takes a walk through the graph

    def ran(args, kwargs):
        fetches = _flat(argument(args, kwargs, 1, "fetches"))
        if any(_one_trains(args[0].graph, fetched, known) for fetched in fetches):
            hook.mark()

    after(module.BaseSession, "run", ran)


def _flat(fetches):
    if isinstance(fetches, dict):
        fetches = list(fetches.values())
    if isinstance(fetches, (list, tuple)):
        return [fetched for part in fetches for fetched in _flat(part)]
    return [fetches]


def _one_trains(graph, fetched, known):
    key = (id(graph), fetched if isinstance(fetched, str) else getattr(fetched, "name", None))
    if key not in known:
        if len(known) >= MOST_KNOWN:
            known.clear()
        known[key] = _leads_to_training(graph, fetched)
    return known[key]


def _leads_to_training(graph, fetched):
    """Return whether running `fetched` runs a train op of the graph."""
    training = set(graph.get_collection(TRAINS))
    try:
        element = graph.as_graph_element(fetched)
    except (TypeError, ValueError, KeyError):
        return False  # an object that defines its own fetches
    waiting, seen = [getattr(element, "op", element)], set()
    while waiting and training:
        op = waiting.pop()
        if op in training:
            return True
        if op not in seen:
            seen.add(op)
            waiting.extend(op.control_inputs)
            waiting.extend(tensor.op for tensor in op.inputs)
    return False


# ---------------------------------------------------------------- TensorFlow 2


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
    function_class.__call__ = flagging(function_class.__call__)

    def called(args, kwargs):
        if args[0]._harness_trains and context.executing_eagerly():  # else it was traced in another
            hook.mark_named(str(args[0]._name))

    after(function_class, "__call__", called)


def _count_gradients(module, hook):
    def count(args, kwargs):
        gradients[0] += 1

    after(module.GradientTape, "gradient", count)


STEPS = {
    "tf1": StepKind("a Session.run that trains", dict.fromkeys(NAMES, _session)),
    "tf2": StepKind(
        "a call of a tf.function that takes a gradient",
        {
            "tensorflow.python.eager.polymorphic_function.polymorphic_function": _count_calls,
            "tensorflow.python.eager.def_function": _count_calls,  # until TensorFlow 2.10
            "tensorflow.python.eager.backprop": _count_gradients,
        },
    ),
}
