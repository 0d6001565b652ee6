"""One pass per step through a U-Net-like network whose convolution outputs take hundreds of MiB each."""

PARAMS = {
    "batch": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64],
    "scale": [1, 2, 4, 8],
    "allow_growth": [True, False],
    "mode": ["infer", "train"],
}

WIDTH, HEIGHT, CHANNELS_IN = 1280, 720, 9
CHANNELS = (64, 64, 64, 128, 128, 256, 256, 128, 128, 64, 64, 3)
STRIDED = (3, 5)  # these layers halve the picture; the layers that mirror them double it again
DOUBLED = (9, 11)
SKIPS = {9: 4, 11: 2}  # layer -> the earlier layer whose output is added to its own
FLOAT_BYTES = 4


def setup(batch=1, scale=1, allow_growth=True, mode="infer"):
    """Return the step. `scale` divides width and height. The weights are the same in each run."""
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    print("TensorFlow %s: graph mode, %s" % (tf.__version__, "native" if tf.__version__ < "2" else "tf.compat.v1"))
    height, width = HEIGHT // scale, WIDTH // scale
    picture = v1.placeholder(tf.float32, [batch, height, width, CHANNELS_IN], name="picture")
    result = network(tf, picture, training=mode == "train")
    wanted = tf.reduce_mean(tf.square(result))
    if mode == "train":
        wanted = v1.train.GradientDescentOptimizer(1e-3).minimize(wanted)
    session = v1.Session(config=settings(tf, allow_growth))
    session.run(v1.global_variables_initializer())
    v1.get_default_graph().finalize()
    pixels = np.random.RandomState(0).rand(batch, height, width, CHANNELS_IN).astype(np.float32)
    report = v1.RunOptions(report_tensor_allocations_upon_oom=True)

    def step():
        session.run(wanted, {picture: pixels}, options=report)
        return batch

    return step


def settings(tf, allow_growth):
    """Switch off the fusing of operations, so that each convolution's output has its own name."""
    config = tf.compat.v1.ConfigProto()
    config.gpu_options.allow_growth = allow_growth
    rewriting = config.graph_options.rewrite_options
    rewriting.remapping = type(rewriting).OFF
    return config


def network(tf, tensor, training):
    outputs = {}
    for number, channels in enumerate(CHANNELS, start=1):
        with tf.compat.v1.variable_scope("conv%d" % number):
            if number in DOUBLED:
                tensor = doubled(tf, tensor, outputs[SKIPS[number]])
            tensor = convolution(tf, tensor, channels, 2 if number in STRIDED else 1)
            if number < len(CHANNELS):
                tensor = tf.nn.relu(normalised(tf, tensor, training))
            if number in SKIPS and outputs[SKIPS[number]].shape == tensor.shape:
                tensor = tensor + outputs[SKIPS[number]]
        outputs[number] = tensor
    return tensor


def doubled(tf, tensor, like):
    return tf.compat.v1.image.resize_bilinear(tensor, like.shape[1:3])


def convolution(tf, tensor, channels, stride):
    shape = [3, 3, int(tensor.shape[-1]), channels]
    weights = tf.compat.v1.get_variable(
        "weights", shape, initializer=tf.compat.v1.random_normal_initializer(stddev=0.05, seed=1)
    )
    return tf.nn.conv2d(tensor, weights, [1, stride, stride, 1], "SAME", name="Conv2D")


def normalised(tf, tensor, training):
    v1 = tf.compat.v1
    size = [int(tensor.shape[-1])]
    scale = v1.get_variable("scale", size, initializer=v1.ones_initializer())
    offset = v1.get_variable("offset", size, initializer=v1.zeros_initializer())
    moments = {} if training else {"mean": tf.zeros(size), "variance": tf.ones(size)}
    return v1.nn.fused_batch_norm(tensor, scale, offset, is_training=training, **moments)[0]


def expected_bytes(batch=1, scale=1, **_):
    """Return op -> bytes of each convolution's output: batch x height x width x channels x 4."""
    height, width, sizes = HEIGHT // scale, WIDTH // scale, {}
    shapes = {0: (height, width)}
    for number, channels in enumerate(CHANNELS, start=1):
        if number in STRIDED:
            height, width = -(-height // 2), -(-width // 2)
        if number in DOUBLED:
            height, width = shapes[SKIPS[number]]
        shapes[number] = (height, width)
        sizes["conv%d/Conv2D" % number] = batch * height * width * channels * FLOAT_BYTES
    return sizes
