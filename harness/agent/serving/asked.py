"""Reads a request as it is written in a matrix file or in a file of requests, in all places that need to know it."""

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
