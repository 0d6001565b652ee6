"""How a registry asks who we are: the header `WWW-Authenticate` of its 401 answers (RFC 9110, 11.6.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

PART = re.compile(
    r"""[\s,]*(?:
        (?P<key>[\w-]+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s,"]*))
        |(?P<scheme>[A-Za-z][\w-]*)(?=[\s,]|$)
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """`scheme` is in small letters; `realm` of a bearer challenge is the address of the token service."""

    scheme: str
    realm: str = ""
    service: str = ""

    def token_url(self, repository: str) -> str:
        """Where to get a token that lets us read `repository`.

        The scope is ours: nvcr.io names an empty one (`scope=""`), and an older form of it one in the realm that asks
        to push as well.
        """
        parts = urlsplit(self.realm)
        asked = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("scope", "service")]
        service = self.service or dict(parse_qsl(parts.query)).get("service", "")
        asked += [("service", service)] if service else []
        asked.append(("scope", f"repository:{repository}:pull"))
        return urlunsplit(parts._replace(query=urlencode(asked, safe=":/"), fragment=""))


def read_challenges(header: str) -> tuple[Challenge, ...]:
    """All challenges of a header, in its order; what cannot be read ends it."""
    found: list[dict[str, str]] = []
    at = 0
    while part := PART.match(header, at):
        at = part.end()
        if part["scheme"]:
            found.append({"scheme": part["scheme"].lower()})
        elif found:
            quoted = part["quoted"]
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else part["bare"]
            found[-1].setdefault(part["key"].lower(), value)
    return tuple(
        Challenge(scheme=each["scheme"], realm=each.get("realm", ""), service=each.get("service", "")) for each in found
    )
