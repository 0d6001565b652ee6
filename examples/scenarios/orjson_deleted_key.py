"""Serialise a dict from which a key was deleted."""


def setup():
    import orjson

    def step():
        reply = {"name": "x", "secret": "y"}
        del reply["secret"]
        if orjson.dumps(reply) != b'{"name":"x"}':
            raise RuntimeError("orjson.dumps returned something else")

    return step
