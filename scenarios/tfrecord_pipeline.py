"""One batch per step from a tf.data pipeline over records on disk, with a slow consumer."""

import os
import tempfile
import time

PARAMS = {
    "source": ["tfrecord_files", "interleave", "range_index"],
    "readers": [1, 4, 8],
    "shuffle": [False, True],
    "prefetch": [0, 2, "autotune"],
    "shared_map": [False, True],
    "datasets": ["single", "sampled_pair"],
    "example": ["raw_bytes", "serialized_tensor"],
    "consumer_ms": [0, 5, 50],
}

FILES = 8
IMAGES_A_FILE = 8
SIDE = 128
BATCH = 8


def setup(
    *, source="tfrecord_files", readers=1, shuffle=False, prefetch=0, shared_map=False, datasets="single",
    example="raw_bytes", consumer_ms=0,
):  # fmt: skip
    """Return the step. With `shared_map`, records are parsed after both datasets are joined, instead of in each."""
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    print("TensorFlow %s: graph mode" % tf.__version__)
    paths = write_files(tf, example)
    sizes_kib = sum(os.path.getsize(path) for path in paths) / 1024.0
    print("%d files with %s: %.0f KiB" % (FILES, example, sizes_kib))
    parse = parser(tf, source, example, paths)
    halves = [paths] if datasets == "single" else [paths[: FILES // 2], paths[FILES // 2 :]]
    parts = [records(tf, source, half, readers, shuffle) for half in halves]
    if not shared_map:
        parts = [part.map(parse, num_parallel_calls=readers) for part in parts]
    joined = parts[0] if len(parts) == 1 else sampled(tf, parts)
    if shared_map:
        joined = joined.map(parse, num_parallel_calls=readers)
    joined = joined.batch(BATCH, drop_remainder=True)
    if prefetch:
        joined = joined.prefetch(tf.data.experimental.AUTOTUNE if prefetch == "autotune" else prefetch)
    batch = tf.compat.v1.data.make_one_shot_iterator(joined).get_next()
    session = tf.compat.v1.Session()
    tf.compat.v1.get_default_graph().finalize()

    def step():
        return {"items": consume(session, batch, consumer_ms), "files_kib": sizes_kib}

    return step


def consume(session, batch, consumer_ms):
    """Use a batch as a training loop does, in separate lines for the tables by line."""
    images = session.run(batch)
    brightness = images.mean()
    time.sleep(consumer_ms * 1e-3)
    assert brightness > 0
    return len(images)


profile = consume


# ---------------------------------------------------------------- files


def write_files(tf, example):
    """Write FILES record files of photo-like images, and return their paths."""
    import numpy as np

    folder = tempfile.mkdtemp(prefix="records-")
    waves = np.linspace(0, 3, SIDE)
    pixels = tf.compat.v1.placeholder(tf.uint8, [SIDE, SIDE, 3])
    encode = (
        tf.io.encode_jpeg(pixels)
        if example == "raw_bytes"
        else tf.io.serialize_tensor(tf.cast(pixels, tf.float32) / 255.0)
    )
    paths = []
    with tf.compat.v1.Session() as session:
        for number in range(FILES):
            paths.append(os.path.join(folder, "part-%d.tfrecord" % number))
            with tf.io.TFRecordWriter(paths[-1]) as writer:
                for place in range(IMAGES_A_FILE):
                    light = np.sin(waves + number)[:, None] * np.cos(waves + place)[None, :]
                    image = np.repeat((127 * (1 + light)).astype(np.uint8)[:, :, None], 3, axis=2)
                    data = session.run(encode, {pixels: image})
                    writer.write(as_example(tf, data))
    return paths


def as_example(tf, data):
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[data]))
    return tf.train.Example(features=tf.train.Features(feature={"image": feature})).SerializeToString()


# ---------------------------------------------------------------- pipelines


def records(tf, source, paths, readers, shuffle):
    """Return an endless dataset of serialized records; with `range_index`, of numbers."""
    if source == "range_index":
        dataset = tf.data.Dataset.range(len(paths) * IMAGES_A_FILE)
    elif source == "tfrecord_files":
        dataset = tf.data.TFRecordDataset(paths, num_parallel_reads=readers)
    else:
        dataset = tf.data.Dataset.from_tensor_slices(paths)
        calls = min(readers, len(paths))  # more than that is an error in TensorFlow
        dataset = dataset.interleave(
            tf.data.TFRecordDataset, cycle_length=len(paths), block_length=1, num_parallel_calls=calls
        )
    if shuffle:
        dataset = dataset.shuffle(len(paths) * IMAGES_A_FILE, seed=0)
    return dataset.repeat()


def sampled(tf, parts):
    """Return a dataset that draws from both `parts` at random."""
    if hasattr(tf.data.Dataset, "sample_from_datasets"):
        return tf.data.Dataset.sample_from_datasets(parts, [0.5, 0.5], seed=0)
    return tf.data.experimental.sample_from_datasets(parts, [0.5, 0.5], seed=0)


def parser(tf, source, example, paths):
    """Return a function from one element to its float image. With `range_index`, images are in memory, by number."""

    def parse_record(record):
        data = tf.io.parse_single_example(record, {"image": tf.io.FixedLenFeature([], tf.string)})["image"]
        if example == "raw_bytes":
            return tf.cast(tf.io.decode_jpeg(data, channels=3), tf.float32) / 255.0
        return tf.ensure_shape(tf.io.parse_tensor(data, tf.float32), [SIDE, SIDE, 3])

    if source != "range_index":
        return parse_record
    held = tf.constant(all_records(tf, paths))
    return lambda number: parse_record(held[number])


def all_records(tf, paths):
    return [record for path in paths for record in tf.compat.v1.io.tf_record_iterator(path)]
