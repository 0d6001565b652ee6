"""Ask a message 20 times for the size of a submessage that is not set."""


def setup():
    from google.protobuf.type_pb2 import Type

    message = Type()

    def step():
        for _ in range(20):
            message.source_context.ByteSize()

    return step
