"""Copy raw messages, or make patterns: two small leaks, fixed in different versions."""

PARAMS = {"what": ["raw", "pattern"]}


def setup(what):
    import re

    import msgspec

    decoder = msgspec.json.Decoder(msgspec.Raw)
    count = [0]

    def copy():
        count[0] += 1
        decoder.decode(b'{"a": %d, "b": "%s"}' % (count[0], b"x" * 1000)).copy()

    def pattern():
        count[0] += 1
        msgspec.Meta(pattern="a%d[bc]+" % count[0])
        re.purge()

    return copy if what == "raw" else pattern
