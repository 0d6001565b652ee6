"""Put the headers of a request into a MultiDict, then take them out or only read them."""

PARAMS = {"op": ["pop", "read"]}

HEADERS = 30


def setup(op="pop"):
    from itertools import count

    from multidict import MultiDict

    request = count()

    def step():
        number = next(request)
        headers = MultiDict({"X-Header-%d" % i: "request %d, value %d" % (number, i) for i in range(HEADERS)})
        take = headers.pop if op == "pop" else headers.getone
        for name in list(headers):
            take(name)

    return step
