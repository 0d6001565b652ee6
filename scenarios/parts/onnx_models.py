"""ONNX models written by hand in protobuf's encoding, so that the onnx package is not needed."""

FLOAT = 1  # onnx.TensorProto.FLOAT
IR_VERSION = 8
OPERATORS = 13


def copies(count, metadata, dimension=4):
    """A model that copies each of `count` inputs to an output, with `metadata` entries (name -> text).

    `dimension` is the length of each input: a number, or a name for one that may change.
    """
    nodes = [(1, message((1, "input%d" % n), (2, "output%d" % n), (4, "Identity"))) for n in range(count)]
    inputs = [(11, tensor("input%d" % n, dimension)) for n in range(count)]
    outputs = [(12, tensor("output%d" % n, dimension)) for n in range(count)]
    graph = message(*nodes, (2, "copies"), *inputs, *outputs)
    entries = [(14, message((1, key), (2, text))) for key, text in sorted(metadata.items())]
    return message((1, IR_VERSION), (7, graph), (8, message((2, OPERATORS))), *entries)


def tensor(name, dimension):
    """A ValueInfoProto: `name` is a float tensor of one dimension."""
    length = message((2, dimension)) if isinstance(dimension, str) else message((1, dimension))
    return message((1, name), (2, message((1, message((1, FLOAT), (2, message((1, length))))))))


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
