"""Run a model of one node, local response normalisation, on one thread."""

SHAPE = (1, 32, 56, 56)
FLOAT = 1  # onnx.TensorProto.FLOAT
INT = 2  # onnx.AttributeProto.INT


def setup():
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(lrn_model(), options, providers=["CPUExecutionProvider"])
    image = numpy.random.RandomState(0).rand(*SHAPE).astype(numpy.float32)

    def step():
        session.run(None, {"image": image})

    return step


def lrn_model():
    """The model in ONNX's protobuf encoding, written by hand so that the onnx package is not needed."""
    size = message((1, "size"), (3, 5), (20, INT))
    node = message((1, "image"), (2, "result"), (4, "LRN"), (5, size))
    graph = message((1, node), (2, "lrn"), (11, tensor("image")), (12, tensor("result")))
    return message((1, 8), (7, graph), (8, message((2, 13))))  # IR version 8, operator set 13


def tensor(name):
    """A ValueInfoProto: `name` is a float tensor of SHAPE."""
    dimensions = [(1, message((1, size))) for size in SHAPE]
    return message((1, name), (2, message((1, message((1, FLOAT), (2, message(*dimensions)))))))


def message(*fields):
    """A protobuf message of (field number, value): whole numbers as varint, text and messages with their length."""
    return b"".join(field(number, value) for number, value in fields)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    body = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(body)) + body


def varint(n):
    """Seven bits a byte, lowest first, the eighth bit set on all but the last."""
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)
