"""One eager tf.signal.stft per step."""

PARAMS = {"batch": [1, 4, 16]}

SAMPLES = 4096
FRAME_LENGTH = 256
FRAME_STEP = 64


def setup(batch=4):
    import tensorflow as tf

    if not tf.executing_eagerly():
        raise RuntimeError("eager_stft needs TensorFlow 2, this is %s: use signal_ops.py" % tf.__version__)
    print("TensorFlow %s: eager" % tf.__version__)
    signal = tf.ones([batch, SAMPLES])

    def step():
        tf.signal.stft(signal, FRAME_LENGTH, FRAME_STEP)

    return step
