"""Reads what a matrix file or a file of requests says of a request, in all places that need to know it. A script that
reproduces a launch has these functions, too.
"""

import json


def request_of(asked: dict, params: dict) -> dict:
    """Return what is sent for a request, with its `expect` and `weight`. A param replaces its name in braces."""
    is_json, place = "json" in asked, asked.get("get") or asked.get("post") or "/"
    body = json.dumps(asked["json"], ensure_ascii=False) if is_json else asked.get("body")
    for name, value in params.items():
        place, body = (text and text.replace("{%s}" % name, str(value)) for text in (place, body))
    return {
        "method": "GET" if "get" in asked else "POST",
        "path": place,
        "headers": dict({"Content-Type": "application/json"} if is_json else {}, **asked.get("headers") or {}),
        "body": body,
        "expect": asked.get("expect") or {},
        "weight": asked.get("weight", 1),
    }


def at_path(value, path):
    """Return what is at a dotted path; None if nothing is."""
    for word in path.split("."):
        if isinstance(value, list) and word.isdigit() and int(word) < len(value):
            value = value[int(word)]
        elif isinstance(value, dict):
            value = value.get(word)
        else:
            return None
    return value


def picked(kinds, weights, chance):
    """Yield the kinds of request in their order, which is the same for every version. `chance`: a random.Random."""
    import bisect
    import itertools

    bounds = list(itertools.accumulate(weights))
    while True:
        yield kinds[0] if len(kinds) == 1 else kinds[bisect.bisect(bounds, chance.random() * bounds[-1])]


def params_taken(setup, params):
    """Return those of the params that the `setup` of a client takes after the url."""
    import inspect  # only a client of the user's needs it

    first, *others = inspect.signature(setup).parameters.values()
    names = [each.name for each in others if each.kind != each.VAR_KEYWORD]
    takes_all = len(names) < len(others)
    return {name: params[name] for name in params if name in names or (takes_all and name != first.name)}
