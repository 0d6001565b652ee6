"""onnxruntime from Python: a session created and dropped in each step, or one session run with changing shapes."""

PARAMS = {
    "stage": ["create", "infer"],
    "shapes": ["fixed", "changing"],
    "inputs": [1, 5, 50],
}

LONGEST = 4096
STEP = 67  # coprime to LONGEST, so that every length occurs once before any repeats


def setup(stage="create", shapes="fixed", inputs=5):
    import numpy
    import onnxruntime
    from parts import onnx_models

    print("onnxruntime %s" % onnxruntime.__version__)
    model = onnx_models.copies(inputs, {"made by": "ort_python"}, dimension="length")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    longest = numpy.zeros(LONGEST, numpy.float32)
    made = 0

    def new_session():
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run(session):
        nonlocal made
        made += 1
        length = 1 + made * STEP % LONGEST if shapes == "changing" else LONGEST
        session.run(None, {"input%d" % number: longest[:length] for number in range(inputs)})

    if stage == "create":
        return lambda: run(new_session())
    session = new_session()
    return lambda: run(session)
