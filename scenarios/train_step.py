"""Train a small convolutional net, one optimizer step per step, in TensorFlow or torch."""

PARAMS = {
    "framework": ["tensorflow", "torch"],
    "batch": [8, 32, 128],
    "device": ["auto", "cpu", "gpu"],
}

SIDE = 32
CLASSES = 10


def setup(framework="tensorflow", batch=32, device="auto"):
    import numpy as np

    random = np.random.RandomState(0)
    images = random.rand(batch, SIDE, SIDE, 3).astype(np.float32)
    classes = random.randint(0, CLASSES, batch).astype(np.int64)
    return FRAMEWORKS[framework](images, classes, device)


def tensorflow_step(images, classes, device):
    """Return the step in graph mode, which 1.15 and 2.x share."""
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    print("TensorFlow %s: graph mode" % tf.__version__)
    if device == "gpu" and not tf.config.experimental.list_physical_devices("GPU"):
        raise RuntimeError("device: gpu: TensorFlow sees no GPU here; use auto or cpu")
    with tf.device({"cpu": "/CPU:0", "gpu": "/GPU:0"}.get(device)):
        first = v1.get_variable("first", [3, 3, 3, 16], initializer=v1.glorot_uniform_initializer(seed=1))
        second = v1.get_variable("second", [3, 3, 16, 32], initializer=v1.glorot_uniform_initializer(seed=2))
        dense = v1.get_variable("dense", [32, CLASSES], initializer=v1.glorot_uniform_initializer(seed=3))
        pixels = v1.placeholder(tf.float32, images.shape)
        labels = v1.placeholder(tf.int64, classes.shape)
        hidden = tf.nn.relu(tf.nn.conv2d(pixels, first, [1, 2, 2, 1], "SAME"))
        hidden = tf.nn.relu(tf.nn.conv2d(hidden, second, [1, 2, 2, 1], "SAME"))
        scores = tf.matmul(tf.reduce_mean(hidden, [1, 2]), dense)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        loss = tf.reduce_mean(losses)
        train = v1.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    v1.get_default_graph().finalize()

    def step():
        value, _ = session.run([loss, train], {pixels: images, labels: classes})
        return {"items": len(classes), "loss": float(value)}

    return step


def torch_step(images, classes, device):
    import torch

    print("torch %s" % torch.__version__)
    if device == "gpu" and not torch.cuda.is_available():
        raise RuntimeError("device: gpu: torch sees no GPU here; use auto or cpu")
    place = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=2, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, stride=2, padding=1), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, CLASSES),
    ).to(place)  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).copy()).to(place)
    labels = torch.from_numpy(classes).to(place)

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(pixels), labels)
        loss.backward()
        optimizer.step()
        return {"items": len(classes), "loss": float(loss.detach())}

    return step


FRAMEWORKS = {"tensorflow": tensorflow_step, "torch": torch_step}
