"""Makes HTTP requests with bounds on time, size, redirects and attempts.

The library `requests` takes proxies and certificates from the environment. This module turns off its other defaults:
following redirects with credentials, taking a login from ~/.netrc, and waiting and reading without limits.
"""

from __future__ import annotations

import email.utils
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from pydantic import TypeAdapter, ValidationError

from harness.errors import InfrastructureError
from harness.registry.image_references import RegistryName

Pause = Callable[[float], object]
"""Waits for a number of seconds; with 0 it only checks whether to stop. May raise Interrupted."""

BUSY = frozenset({429, 500, 502, 503, 504})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
MOST_REDIRECTS = 5
MOST_BYTES = 16 << 20
MOST_VALUES = 2_000_000
"""Most JSON values of an answer, counted by commas and brackets: parsing 16 MiB of `[],[],` would take a gigabyte."""
CHUNK_BYTES = 1 << 16
POLL_S = 0.1
SOCKET_S = 10.0
ANSWER_S = 60.0
ATTEMPTS = 5
FIRST_PAUSE_S = 1.0
MOST_PAUSE_S = 120.0
"""If a registry asks for a longer pause, the request fails without another attempt."""
_JSON_OBJECT = TypeAdapter(dict[str, Any])


@dataclass(frozen=True, kw_only=True)
class Response:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A request. `authorization` is sent only to the origin of `url`. `verify`: a bool, or a file with the authorities
    to trust. `whole_json`: JSON that cannot be parsed counts as cut off. `most_bytes`: limit on the decompressed body.
    """

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] | None = None
    authorization: str | None = field(default=None, repr=False)
    verify: bool | str = True
    whole_json: bool = False
    most_bytes: int = MOST_BYTES


class _Session(requests.Session):
    """A session that ignores redirects: even with redirects off, requests prepares to follow them."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


class Exchange:
    """Sends requests one at a time, and counts them. `socket_s`: between two packets; `answer_s`: a whole answer."""

    def __init__(
        self,
        *,
        pause: Pause = time.sleep,
        attempts: int = ATTEMPTS,
        socket_s: float = SOCKET_S,
        answer_s: float = ANSWER_S,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.requests = 0
        self._pause = pause
        self._attempts, self._socket_s, self._answer_s = attempts, socket_s, answer_s
        self._now_s = now_s
        self._session = _Session()

    def ask(self, question: Question) -> Response:
        """Return the answer, whatever its status; retry a busy registry. Raises RegistryTrouble or RegistrySilent."""
        host = host_of(question.url)
        pause_s = trouble = None
        for attempt in range(self._attempts):
            if attempt:
                self._pause(pause_s or FIRST_PAUSE_S * 2 ** (attempt - 1))
            try:
                answer = self._follow(question)
            except Fleeting as error:
                pause_s, trouble = None, str(error)
                continue
            if answer.status not in BUSY:
                return answer
            trouble = f"answers with HTTP {answer.status}"
            date_s = _date_s(answer.headers.get("Date", ""))  # the server's clock may differ from ours
            now_s = self._now_s() if date_s is None else date_s
            pause_s = retry_after_s(answer.headers.get("Retry-After", ""), now_s=now_s)
            if pause_s is not None and pause_s > MOST_PAUSE_S:
                raise RegistrySilent(f"{host}: {trouble} and asks to wait {pause_s:.0f} s", hint="try again then")
        attempts = f" ({self._attempts} attempts)" if self._attempts > 1 else ""
        raise RegistrySilent(f"{host}: {trouble}{attempts}", hint="try again later")

    def _follow(self, question: Question) -> Response:
        """Return the answer after all redirects. Another origin, such as a blob store, gets no authorization.

        A form holds a login (a refresh token), so it is sent only to the origin of the question.
        """
        url, is_other = question.url, False
        for _ in range(MOST_REDIRECTS):
            answer = self._bounded(question, url=url, authorization=None if is_other else question.authorization)
            if answer.status not in REDIRECTS:
                return answer
            try:
                url = urljoin(url, answer.headers.get("Location", ""))
                is_other = origin(url) != origin(question.url)
            except ValueError:  # not a URL
                url, is_other = "", True
            if not may_lead(question.url, url) or (question.form is not None and is_other):
                raise RegistryTrouble(f"{host_of(question.url)}: redirects to an unsafe address", hint="not followed")
        raise RegistryTrouble(f"{host_of(question.url)}: redirects too many times")

    def _bounded(self, question: Question, *, url: str, authorization: str | None) -> Response:
        """Make one request in a separate thread: a slow answer can be abandoned, and an interrupt is not delayed."""
        outcome: list[Response | Exception] = []
        done = threading.Event()

        def work() -> None:
            try:
                outcome.append(self._request(question, url=url, authorization=authorization))
            except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
                outcome.append(error)
            done.set()

        self.requests += 1
        ends_s = time.monotonic() + self._answer_s
        threading.Thread(target=work, daemon=True).start()
        while not done.wait(POLL_S):
            self._pause(0)
            if time.monotonic() > ends_s:
                self._session = _Session()  # the abandoned request still uses the old one
                raise Fleeting(f"did not finish its answer within {self._answer_s:.0f} s")
        answer = outcome[0]
        if isinstance(answer, Response):
            return answer
        raise _explained(answer, host_of(url)) from None

    def _request(self, question: Question, *, url: str, authorization: str | None) -> Response:
        headers = {"User-Agent": "harness", **question.headers}
        if authorization:
            headers["Authorization"] = authorization
        if question.verify is False:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        response = self._session.request(
            question.method, url, headers=headers, data=question.form, allow_redirects=False, stream=True,
            timeout=self._socket_s, verify=question.verify,
            auth=lambda request: request,  # without it, requests would look for a login in ~/.netrc
        )  # fmt: skip
        with response:
            answer = Response(
                status=response.status_code,
                headers=response.headers,
                body=_body(response, most_bytes=question.most_bytes),
            )
        is_json = "json" in response.headers.get("Content-Type", "")
        if question.whole_json and is_json and answer.status == 200 and answer.body:
            try:
                _JSON_OBJECT.validate_json(answer.body)
            except ValidationError:
                raise Fleeting("sent an incomplete answer") from None
        return answer


def _body(response: requests.Response, *, most_bytes: int) -> bytes:
    host = host_of(response.url)
    parts, size, values = [], 0, 0
    for part in response.iter_content(CHUNK_BYTES):
        size += len(part)
        values += sum(map(part.count, (b",", b"[", b"{")))
        if size > most_bytes:
            raise RegistryTrouble(f"{host}: answers with more than {most_bytes >> 20} MiB", hint="not read")
        if values > MOST_VALUES:
            raise RegistryTrouble(f"{host}: answers with more than {MOST_VALUES} values", hint="not read")
        parts.append(part)
    return b"".join(parts)


def _explained(error: Exception, host: str) -> Exception:
    """Convert an error of requests. Its text may hold an address with secrets, so only its type is reported."""
    if isinstance(error, requests.exceptions.SSLError):
        return RegistryTrouble(
            f"{host}: its certificate is not trusted",
            hint=f"put its authority's certificate into /etc/docker/certs.d/{host}/ca.crt, where Docker looks for it, "
            "too, or set REQUESTS_CA_BUNDLE",
        )
    if isinstance(error, requests.Timeout):
        return Fleeting("does not answer in time")
    if isinstance(error, requests.exceptions.ChunkedEncodingError | requests.exceptions.ContentDecodingError):
        return Fleeting("sent an incomplete answer")
    if isinstance(error, requests.ConnectionError):
        return Fleeting("cannot be reached")
    if isinstance(error, requests.RequestException):
        return RegistryTrouble(f"{host}: the request failed ({type(error).__name__})", hint="is the address right?")
    return error


def may_lead(asked: str, url: str) -> bool:
    """Return whether a registry at `asked` may refer to `url`: with https to any host, with http only to the same
    origin or to this machine, and never from https to http. A registry on this machine may use http; if it then
    referred to http on another machine, a login would cross the network in plain text.
    """
    try:
        parts, before = urlsplit(url), urlsplit(asked)
        if not parts.hostname or parts.scheme not in ("http", "https"):
            return False
        near = origin(url) == origin(asked) or RegistryName(host=parts.hostname, repository="").is_loopback
        return parts.scheme == "https" or (before.scheme == "http" and near)
    except ValueError:
        return False


def retry_after_s(text: str, *, now_s: float) -> float | None:
    """Return the pause in seconds of a Retry-After header in either form; None if it has neither."""
    if text.strip().isdecimal():
        return float(text)
    date_s = _date_s(text)
    return None if date_s is None else max(0.0, date_s - now_s)


def _date_s(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def host_of(url: str) -> str:
    """Return the host of a URL (`nvcr.io`, `localhost:5000`), without user, password, path and query."""
    return urlsplit(url).netloc.rpartition("@")[2] or "the registry"


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Return the origin of a URL (scheme, host and port), for which an `Authorization` header is valid."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)


# ---------------------------------------------------------------- errors
#
# Each message is one line without a URL, which may hold a signature or a password.


class RegistryTrouble(InfrastructureError):
    """A registry does not answer, or answers unlike a registry; this permits no conclusion.

    `problem` is the text without `hint`, which says how the answer is treated, or what to do about the registry.
    """

    def __init__(self, problem: str, *, hint: str = "") -> None:
        super().__init__(f"{problem}; {hint}" if hint else problem)
        self.problem = problem


class RegistrySilent(RegistryTrouble):
    """A registry could not be reached, or stayed busy, in all attempts; another request would wait just as long."""


class RegistryDenied(RegistryTrouble):
    """A repository or image does not exist, or access is denied; a registry need not say which."""


class Fleeting(Exception):
    """A failure that may not occur at the next attempt. Used only inside this package."""
