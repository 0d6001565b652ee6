"""Serialise a dict that had a key deleted."""


def setup():
    import orjson

    def step():
        reply = {"name": "x", "secret": "y"}
        del reply["secret"]
        if orjson.dumps(reply) != b'{"name":"x"}':
            raise RuntimeError("orjson.dumps gave something else")

    return step
