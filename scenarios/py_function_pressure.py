"""One batch per step from a pipeline whose elements are large arrays made in tf.py_function: growth that ends."""

import time

PARAMS = {
    "parallel_calls": [1, 4, 8, "autotune"],
    "deterministic": [True, False],
    "prefetch": [0, 2, "autotune"],
    "cache": ["none", "before", "after"],
    "batch": [1, 2, 4],
    "consumer_ms": [0, 10, 50],
    "element_mib": [1, 4, 40],
    "work_ms": [2, 10],
}

SESSIONS = []
ELEMENTS = 32  # elements in the dataset, which repeats; with `cache: after` all of them are kept


def setup(
    *, parallel_calls=1, deterministic=True, prefetch=0, cache="none", batch=1, consumer_ms=0, element_mib=40,
    work_ms=10,
):  # fmt: skip
    """Return the step. An element is `element_mib` MiB of float32, and takes `work_ms` to make, as in a decoder."""
    import numpy as np
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    print("TensorFlow %s: graph mode" % tf.__version__)

    def make(_):
        array = np.ones([element_mib << 18], np.float32)
        time.sleep(work_ms * 1e-3)
        return array

    auto = tf.data.experimental.AUTOTUNE
    numbers = tf.data.Dataset.range(ELEMENTS)
    if cache == "before":
        numbers = numbers.cache()
    arrays = numbers.map(
        lambda number: tf.py_function(make, [number], tf.float32),
        num_parallel_calls=auto if parallel_calls == "autotune" else parallel_calls,
    )
    if cache == "after":
        arrays = arrays.cache()
    arrays = ordered(tf, arrays.repeat().batch(batch), deterministic)
    if prefetch:
        arrays = arrays.prefetch(auto if prefetch == "autotune" else prefetch)
    element = tf.reduce_sum(tf.compat.v1.data.make_one_shot_iterator(arrays).get_next())
    session = tf.compat.v1.Session()
    SESSIONS.append(session)
    tf.compat.v1.get_default_graph().finalize()

    def step():
        session.run(element)
        time.sleep(consumer_ms * 1e-3)
        return batch

    return step


def teardown():
    """Close the pipeline: an open pipeline goes on calling Python, which then cannot end."""
    SESSIONS.pop().close()


def ordered(tf, dataset, deterministic):
    """Return the dataset with `deterministic` set, under the name that this version of TensorFlow uses for it."""
    options = tf.data.Options()
    name = "deterministic" if hasattr(options, "deterministic") else "experimental_deterministic"
    setattr(options, name, deterministic)
    return dataset.with_options(options)
