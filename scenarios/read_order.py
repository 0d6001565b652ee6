"""The order in which a tf.data pipeline yields ten thousand ordered numbers from five files; one pass per step."""

import os
import tempfile

PARAMS = {
    "pipeline": ["sequential", "interleave", "parallel_interleave", "parallel_reads"],
    "readers": [2, 5, 8],
    "block": [1, 16],
    "shuffle": [0, 100, 1000, 10000],
}

NUMBERS = 10000
FILES = 5
BATCH = 500
DRAWN = 1000  # points of the plot

LAST_ORDER = []


def setup(pipeline="sequential", readers=5, block=1, shuffle=0):
    """Return the step. `block` is the number of records in a row that an interleave takes from one file."""
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    print("TensorFlow %s: graph mode" % tf.__version__)
    numbers = dataset(tf, pipeline, write_files(tf), readers, block)
    if shuffle:
        numbers = numbers.shuffle(shuffle, seed=0, reshuffle_each_iteration=False)
    iterator = tf.compat.v1.data.make_initializable_iterator(numbers.batch(BATCH))
    batch, begin = iterator.get_next(), iterator.initializer
    session = tf.compat.v1.Session()
    tf.compat.v1.get_default_graph().finalize()

    def step():
        session.run(begin)
        order = [int(text) for _ in range(NUMBERS // BATCH) for text in session.run(batch)]
        LAST_ORDER[:] = order
        return {"items": len(order), "mixing": mixing(order)}

    return step


def write_files(tf):
    """Write the numbers 0 to 9,999 in order, the first fifth into the first file, and so on."""
    folder = tempfile.mkdtemp(prefix="order-")
    paths = [os.path.join(folder, "part-%d.tfrecord" % number) for number in range(FILES)]
    each = NUMBERS // FILES
    for place, path in enumerate(paths):
        with tf.io.TFRecordWriter(path) as writer:
            for number in range(place * each, (place + 1) * each):
                writer.write(str(number).encode("ascii"))
    return paths


def dataset(tf, pipeline, paths, readers, block):
    records = tf.data.TFRecordDataset
    if pipeline == "sequential":
        return records(paths)
    if pipeline == "parallel_reads":
        return records(paths, num_parallel_reads=readers)
    files = tf.data.Dataset.from_tensor_slices(paths)
    cycle = min(readers, FILES)
    calls = {"num_parallel_calls": cycle} if pipeline == "parallel_interleave" else {}  # TensorFlow accepts no more
    return files.interleave(records, cycle_length=cycle, block_length=block, **calls)


def mixing(order):
    """Return the mean distance of the numbers from their places, relative to a random order: 0 ordered, 1 random."""
    moved = sum(abs(place - number) for place, number in enumerate(order))
    return moved / (len(order) ** 2 / 3.0)


def artifacts():
    """Return a plot of the last pass: place from left to right, number from bottom to top."""
    every = max(1, len(LAST_ORDER) // DRAWN)
    points = "".join(
        "M%d %dh2" % (place * 500 // NUMBERS, 500 - number * 500 // NUMBERS)
        for place, number in list(enumerate(LAST_ORDER))[::every]
    )
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-5 -5 510 530">'
    paper = '<rect width="500" height="500" fill="#fff"/>'
    words = '<text x="0" y="518" font-family="sans-serif" font-size="14">mixing %.3f</text>' % mixing(LAST_ORDER)
    return {"order.svg": head + paper + '<path d="%s" stroke="#36c" stroke-width="2"/>' % points + words + "</svg>\n"}
