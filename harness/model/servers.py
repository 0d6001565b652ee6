"""Defines records of what is sent to a scenario that is a server."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from harness.model.from_file import FromFile, Later, Scalar

if TYPE_CHECKING:
    from harness.model import file_keys, forms
else:
    file_keys, forms = Later("harness.model.file_keys"), Later("harness.model.forms")


@dataclass(frozen=True, kw_only=True)
class WhenReady(FromFile):
    """When a server is ready: once a port accepts connections, or as given here."""

    http: forms.Text | None = None
    """A path, such as /health, that answers with a status from 200 to 399."""
    line: forms.Text | None = None
    """A text in a line that the server prints."""
    timeout_s: Annotated[forms.Duration | None, forms.key("timeout")] = None
    """The longest time until it is ready. Default: that of the scenario."""


@dataclass(frozen=True, kw_only=True)
class Expect(FromFile):
    """The conditions under which a reply is no failure. Without any, a status from 200 to 299 is enough."""

    status: Annotated[forms.Whole | None, forms.Within(least=100, most=599)] = None
    """The status, such as 201."""
    text: forms.Text | None = None
    """A text in the body."""
    json: Annotated[tuple[tuple[forms.Text, forms.ScalarValue], ...], forms.Pairs()] = ()
    """Values in a JSON body by their paths, such as {choices.0.index: 0}."""


@dataclass(frozen=True, kw_only=True)
class Request(FromFile):
    """A request to a server. Exactly one of `get` and `post` is set. A param replaces its name in braces."""

    get: forms.Text | None = None
    """The path of a GET request."""
    post: forms.Text | None = None
    """The path of a POST request."""
    json_text: Annotated[str | None, forms.key("json"), forms.InFile(form=Any, then=file_keys.json_text)] = None
    """A JSON body."""
    body: forms.Anything | None = None
    """A body of any other kind."""
    headers: forms.Environment = ()
    """Further headers, as a mapping."""
    expect: Expect = Expect()
    """What the reply must have."""
    weight: Annotated[forms.Whole, forms.Within(least=1, most=10**6)] = 1
    """Of several requests: how often this one comes, compared with the others."""

    @property
    def written(self) -> dict[str, Any]:
        """Return it as a line of a file of requests has it."""
        given = {"get": self.get, "post": self.post, "body": self.body}
        expect = {**vars(self.expect), "json": dict(self.expect.json)}
        return {
            **{name: text for name, text in given.items() if text is not None},
            **({} if self.json_text is None else {"json": json.loads(self.json_text)}),
            "headers": dict(self.headers),
            "expect": {name: value for name, value in expect.items() if value},
            "weight": self.weight,
        }


def rate_of(value: Scalar) -> float:
    """Return the requests a second of `20/s`, or of a number. Raises ValueError."""
    text = str(value).removesuffix("/s").strip()
    rate = float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else 0.0
    if not 0 < rate <= MOST_RATE:
        raise ValueError(f"{value!r} is not a rate; write 20/s, at most {MOST_RATE:g}/s")
    return rate


MOST_RATE = 100_000.0
"""Most requests in a second."""
LOAD = ("concurrency", "rate")
"""The params of a server's client."""
