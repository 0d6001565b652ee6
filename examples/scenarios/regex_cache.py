"""Compile a new pattern in every step: the cache of compiled patterns fills up, and then its size stays the same."""


def setup():
    from itertools import count

    import regex

    number = count()

    def step():
        i = next(number)
        pattern = r"order-%d: (?:paid|open)[ ,]+([a-z]+|\d{2,5})" % i
        if regex.search(pattern, "at noon order-%d: paid, 1234 units" % i) is None:
            raise RuntimeError("pattern %d does not match" % i)

    return step
