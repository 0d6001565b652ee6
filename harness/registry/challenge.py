"""Reads authentication challenges: the header `WWW-Authenticate` of 401 answers (RFC 9110, 11.6.1)."""

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
    """One challenge. `scheme` is in lower case; `realm` of a bearer challenge is the token service's address."""

    scheme: str
    realm: str = ""
    service: str = ""

    def token_url(self, repository: str) -> str:
        """Return the URL of a token that allows reading `repository`.

        The scope is always our own, because nvcr.io sends an empty one (`scope=""`), and an older form of its challenge
        has one in the realm that requests push access as well.
        """
        parts = urlsplit(self.realm)
        asked = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("scope", "service")]
        service = self.service or dict(parse_qsl(parts.query)).get("service", "")
        asked += [("service", service)] if service else []
        asked.append(("scope", f"repository:{repository}:pull"))
        return urlunsplit(parts._replace(query=urlencode(asked, safe=":/"), fragment=""))


def read_challenges(header: str) -> tuple[Challenge, ...]:
    """Return all challenges of a header, in order, up to the first part that cannot be parsed."""
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
        Challenge(scheme=fields["scheme"], realm=fields.get("realm", ""), service=fields.get("service", ""))
        for fields in found
    )
