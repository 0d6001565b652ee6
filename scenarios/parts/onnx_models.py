"""ONNX models written by hand in protobuf's encoding, so that the onnx package is not needed."""

FLOAT = 1  # onnx.TensorProto.FLOAT
INT = 2  # onnx.AttributeProto.INT
IR_VERSION = 8
OPERATORS = 13


def copies(count, metadata, dimension=4):
    """Return a model that copies each of `count` inputs to an output, with `metadata` entries (name -> text).

    `dimension` is the length of each input: a number, or a name for a length that may change.
    """
    nodes = [(1, message((1, "input%d" % n), (2, "output%d" % n), (4, "Identity"))) for n in range(count)]
    inputs = [(11, tensor("input%d" % n, [dimension])) for n in range(count)]
    outputs = [(12, tensor("output%d" % n, [dimension])) for n in range(count)]
    entries = [(14, message((1, key), (2, text))) for key, text in sorted(metadata.items())]
    return model(message(*nodes, (2, "copies"), *inputs, *outputs), *entries)


def normalisation(shape, size):
    """Return a model of one node: local response normalisation over `size` channels of `image`, a tensor of `shape`."""
    node = message((1, "image"), (2, "result"), (4, "LRN"), (5, message((1, "size"), (3, size), (20, INT))))
    return model(message((1, node), (2, "lrn"), (11, tensor("image", shape)), (12, tensor("result", shape))))


def model(graph, *entries):
    """Return a ModelProto."""
    return message((1, IR_VERSION), (7, graph), (8, message((2, OPERATORS))), *entries)


def tensor(name, shape):
    """Return a ValueInfoProto: `name` is a float tensor whose dimensions are numbers, or names if they may change."""
    lengths = [message((2, each)) if isinstance(each, str) else message((1, each)) for each in shape]
    dimensions = [(1, length) for length in lengths]
    return message((1, name), (2, message((1, message((1, FLOAT), (2, message(*dimensions)))))))


def message(*fields):
    """Return a protobuf message of (field number, value): integers as varints, text and messages with their length."""
    return b"".join(field(number, value) for number, value in fields)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    body = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(body)) + body


def varint(n):
    """Return a varint: seven bits per byte, lowest first, with the eighth bit set on all bytes but the last."""
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)
