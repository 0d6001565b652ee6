"""Allocate and free one block per step with torch, cupy or TensorFlow, on the GPU or the CPU."""

PARAMS = {
    "library": ["torch", "cupy", "tensorflow"],
    "mib": [1, 16, 256],
    "device": ["gpu", "cpu"],
    "sizes": ["same", "changing"],
}

CYCLE = 16  # number of different sizes, which then repeat


def setup(library="torch", mib=16, device="gpu", sizes="same"):
    """Return the step. With `changing`, each of CYCLE blocks is a little larger than the one before, which splits the
    blocks that a pool holds."""
    take = LIBRARIES[library](device)
    counts = [(mib << 18) * (CYCLE + (place if sizes == "changing" else 0)) // CYCLE for place in range(CYCLE)]
    made = 0

    def step():
        nonlocal made
        take(counts[made % CYCLE])
        made += 1

    return step


def torch_block(device):
    import torch

    print("torch %s" % torch.__version__)
    if device == "gpu" and not torch.cuda.is_available():
        raise RuntimeError("device: gpu: torch sees no GPU here; use cpu")
    place = torch.device("cuda" if device == "gpu" else "cpu")

    def take(floats):
        torch.ones(floats, dtype=torch.float32, device=place)
        if device == "gpu":
            torch.cuda.synchronize()

    return take


def cupy_block(device):
    if device == "cpu":
        raise RuntimeError("device: cpu: cupy needs a GPU; use torch or tensorflow")
    import cupy

    print("cupy %s" % cupy.__version__)

    def take(floats):
        cupy.ones(floats, dtype=cupy.float32)
        cupy.cuda.Device().synchronize()

    return take


def tensorflow_block(device):
    """Return the step in graph mode, which 1.15 and 2.x share: the block is freed at the end of each run."""
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    print("TensorFlow %s: graph mode" % tf.__version__)
    if device == "gpu" and not tf.config.experimental.list_physical_devices("GPU"):
        raise RuntimeError("device: gpu: TensorFlow sees no GPU here; use cpu")
    with tf.device("/GPU:0" if device == "gpu" else "/CPU:0"):
        floats = v1.placeholder(tf.int32, [])
        block = tf.fill([floats], 1.0)
        last = block[-1]
    session = v1.Session()
    v1.get_default_graph().finalize()
    return lambda count: session.run(last, {floats: count})


LIBRARIES = {"torch": torch_block, "cupy": cupy_block, "tensorflow": tensorflow_block}
