"""Train a linear classifier on the features of a frozen network."""

IMAGES = (8, 16, 28, 28)
CLASSES = 10


def setup(batches=4):
    import numpy as np
    import onnxruntime
    from parts import onnx_models

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    frozen = onnxruntime.InferenceSession(
        onnx_models.normalisation(IMAGES, size=5), options, providers=["CPUExecutionProvider"]
    )
    random = np.random.RandomState(0)
    data = [
        (random.rand(*IMAGES).astype(np.float32), np.eye(CLASSES, dtype=np.float32)[random.randint(CLASSES, size=8)])
        for _ in range(batches)
    ]
    weights = np.zeros((int(np.prod(IMAGES[1:])), CLASSES), dtype=np.float32)
    made = 0

    def step():
        nonlocal weights, made
        images, labels = data[made % batches]
        made += 1
        features = frozen.run(None, {"image": images})[0].reshape(len(images), -1)
        scores = features @ weights
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        loss = -float(np.log((odds * labels).sum(axis=1)).mean())
        weights = weights - 1e-4 * features.T @ (odds - labels)
        return {"loss": loss}

    return step
