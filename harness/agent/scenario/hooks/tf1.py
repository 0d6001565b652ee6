"""TensorFlow 1, and its interface in 2: a step is a `Session.run` of an op that trains, or that depends on one."""

import functools

NAMES = ("tensorflow.python.client.session", "tensorflow_core.python.client.session")
TRAINS = "train_op"  # the collection to which Optimizer.apply_gradients adds its op
MOST_KNOWN = 1000


def _session(module, hook):
    known = {}  # (graph, name of what is fetched) -> whether it trains, which takes a walk through the graph
    original = module.BaseSession.run

    @functools.wraps(original)
    def run(self, fetches, *args, **kwargs):
        result = original(self, fetches, *args, **kwargs)
        if any(_one_trains(self.graph, fetched, known) for fetched in _flat(fetches)):
            hook.mark()
        return result

    module.BaseSession.run = run


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


MODULES = dict.fromkeys(NAMES, _session)
