"""One tf.signal transform per step, in graph mode."""

PARAMS = {
    "op": ["rfft", "irfft", "fft", "ifft", "fft2d", "dct", "stft"],
    "input": ["random", "variable", "zeros", "ones", "constant", "numpy"],
    "rounds": [1, 2],
}

FRAMES = 144
FRAME_LENGTH = 400
FRAME_STEP = 160
FFT_LENGTH = 512

# The second round begins within the warm-up of even a short trial, so that no trend is fitted across its beginning.
STEPS_OF_FIRST_ROUND = 100


def setup(op="rfft", input="random", rounds=1):
    """Return the step, which runs the transform `op` of `input` once and leaves the result where it was computed.

    With two rounds the graph is discarded after STEPS_OF_FIRST_ROUND steps and built again, as by a second training
    in the same process.
    """
    import tensorflow as tf

    v1 = tf.compat.v1  # TensorFlow 1.15 has it too, so one path serves both
    v1.disable_eager_execution()
    print("TensorFlow %s: graph mode, %s" % (tf.__version__, "native" if tf.__version__ < "2" else "tf.compat.v1"))
    session, transform, feed = _begin_round(tf, op, input)
    steps_left = STEPS_OF_FIRST_ROUND if rounds == 2 else -1

    def step():
        nonlocal session, transform, feed, steps_left
        if steps_left == 0:
            session.close()
            v1.reset_default_graph()
            session, transform, feed = _begin_round(tf, op, input)
        steps_left -= 1
        session.run(transform, feed)

    return step


def _begin_round(tf, op, input):
    """Return (a session over the finished default graph, the operation to run in it, what to feed)."""
    v1 = tf.compat.v1
    source, feed = _source(tf, input, _shape(op))
    transform = _transform(tf, op, source).op
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    v1.get_default_graph().finalize()  # a step that adds to the graph is an error, not a leak
    return session, transform, feed


def _shape(op):
    if op == "stft":  # stft cuts the frames out of a signal itself
        return [FRAME_LENGTH + (FRAMES - 1) * FRAME_STEP]
    if op in ("fft", "ifft", "fft2d"):  # they take no length
        return [FRAMES, FFT_LENGTH]
    return [FRAMES, FRAME_LENGTH]


def _source(tf, input, shape):
    """Return (a float32 tensor of `shape`, the feed that it needs at each run)."""
    import numpy as np

    values = np.random.RandomState(0).standard_normal(shape).astype(np.float32)
    v1 = tf.compat.v1
    if input == "random":
        return tf.random.normal(shape), None
    if input == "variable":
        return v1.get_variable("source", initializer=values), None
    if input == "zeros":
        return tf.zeros(shape), None
    if input == "ones":
        return tf.ones(shape), None
    if input == "constant":
        return tf.constant(values), None
    placeholder = v1.placeholder(tf.float32, shape)
    return placeholder, {placeholder: values}


def _transform(tf, op, frames):
    if op == "rfft":
        return tf.signal.rfft(frames, [FFT_LENGTH])
    if op == "dct":
        return tf.signal.dct(frames, n=FFT_LENGTH)
    if op == "stft":
        return tf.signal.stft(frames, FRAME_LENGTH, FRAME_STEP, FFT_LENGTH)
    bins = tf.cast(frames, tf.complex64)
    if op == "irfft":
        return tf.signal.irfft(bins, [FFT_LENGTH])
    return getattr(tf.signal, op)(bins)
