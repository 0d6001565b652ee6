"""Makes the keys of a server from the options that a user typed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from harness.errors import UsageError


def served_by(
    serve: bool, *, port: int | None, get: str | None, post: str | None, body: str | None, concurrency: int | None
) -> Mapping[str, Any] | None:
    """Return the keys of a server's scenario for the options as typed; None if the command starts none. Raises
    UsageError."""
    typed = {"--port": port, "--get": get, "--post": post, "--body": body, "--concurrency": concurrency}
    if not serve:
        for name, value in typed.items():
            if value is not None:
                raise UsageError(f"{name} {value}: is for a server; add --serve")
        return None
    if (get is None) == (post is None):
        raise UsageError("--serve: give one of --get PATH and --post PATH, such as --get /health")
    if body is not None and post is None:
        raise UsageError("--body: is the body of a POST request; give --post PATH")
    try:
        sent = {} if body is None else {"json": json.loads(body)}
    except ValueError as error:
        raise UsageError(f"--body {body}: is not JSON: {error}") from error
    request = {"get": get} if post is None else {"post": post, **sent}
    given = {"port": port, "request": request, "params": None if concurrency is None else {"concurrency": concurrency}}
    return {name: value for name, value in given.items() if value is not None}
