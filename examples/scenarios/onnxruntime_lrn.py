"""Run a model of one node, local response normalisation, on one thread."""

SHAPE = (1, 32, 56, 56)


def setup():
    import numpy
    import onnxruntime
    from parts import onnx_models

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = onnx_models.normalisation(SHAPE, size=5)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    image = numpy.random.RandomState(0).rand(*SHAPE).astype(numpy.float32)

    def step():
        session.run(None, {"image": image})

    return step
