"""A registry that is busy, slow, broken or malicious: limited attempts, no endless loop, one line that says why."""

from __future__ import annotations

import ipaddress
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from harness.errors import Interrupted
from harness.registry.bounded_http import Exchange, RegistrySilent, RegistryTrouble, may_lead, retry_after_s
from harness.registry.bounded_http import Question as Ask
from tests.players.servers import Reply, Request, Server, World, started
from tests.serving import self_signed

OK = Reply(headers={"Content-Type": "application/json"}, body=b'{"tags": ["1"]}')


def replies(server: Server, *script: Reply) -> None:
    """Return these replies in turn, and then the last one forever."""
    server.answer = lambda request: script[min(len(server.asked), len(script)) - 1]


def tags(server: Server, world: World) -> tuple[str, ...]:
    return world.registry().tags(f"{server.host}/team/app")


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_registry_is_asked_again(server: Server, world: World, status: int) -> None:
    replies(server, Reply(status=status), Reply(status=status), OK)
    assert tags(server, world) == ("1",)
    assert world.pauses == [1, 2]


def test_the_pause_is_the_one_asked_for(server: Server, world: World) -> None:
    date = "Sun, 09 Sep 2001 01:47:00 GMT"  # 20 s after the current time of `World`
    replies(
        server, Reply(status=429, headers={"Retry-After": "7"}), Reply(status=503, headers={"Retry-After": date}), OK
    )
    assert tags(server, world) == ("1",)
    assert world.pauses == [7, 20]


def test_a_date_to_wait_for_is_by_the_clock_of_the_registry(server: Server, world: World) -> None:
    """With our clock an hour ahead or behind, the registry was asked again immediately, or given up."""
    theirs = {"Date": "Sun, 09 Sep 2001 02:46:40 GMT", "Retry-After": "Sun, 09 Sep 2001 02:46:47 GMT"}
    replies(server, Reply(status=429, headers=theirs), Reply(status=429, headers={**theirs, "Date": "soon"}), OK)
    with pytest.raises(RegistryTrouble, match="asks to wait 3607 s"):
        tags(server, world)
    assert world.pauses == [7]


def test_a_pause_that_is_too_long_is_told(server: Server, world: World) -> None:
    replies(server, Reply(status=429, headers={"Retry-After": "21600"}))
    with pytest.raises(RegistrySilent, match=r"answers with HTTP 429 and asks to wait 21600 s; try again then"):
        tags(server, world)
    assert (len(server.asked), world.pauses) == (1, [])


def test_one_that_stays_busy_is_left(server: Server, world: World) -> None:
    replies(server, Reply(status=503))
    with pytest.raises(RegistrySilent, match=r"answers with HTTP 503 \(3 attempts\); try again later"):
        tags(server, world)
    assert len(server.asked) == 3


@pytest.mark.parametrize(("text", "expected"), [("5", 5.0), ("", None), ("soon", None), ("-3", None), ("1.5", None)])
def test_retry_after(text: str, expected: float | None) -> None:
    assert retry_after_s(text, now_s=0.0) == expected


def test_a_date_that_is_past_means_now() -> None:
    assert retry_after_s("Sun, 09 Sep 2001 01:46:40 GMT", now_s=2e9) == 0


HALF = [
    [b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"],
    [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"tags\": ["],
    [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"ta"],
    # Complete, but without the header: the next request may then use a connection that is being closed.
    [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnope"],
    [b"HTTP/1.1 2"],
    [b""],
]  # fmt: skip


@pytest.mark.parametrize("parts", HALF, ids=["length", "json", "chunked", "gzip", "header", "nothing"])
def test_half_an_answer_is_asked_for_again(server: Server, world: World, parts: list[bytes]) -> None:
    def answer(request: Request) -> Reply:
        return Reply(raw=iter(parts)) if len(server.asked) < 3 else OK

    server.answer = answer
    assert tags(server, world) == ("1",)
    assert len(server.asked) == 3


def trickle(every_s: float) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    for _ in range(100):
        time.sleep(every_s)
        yield b"x"


@pytest.mark.parametrize("every_s", [0.1, 3.0], ids=["trickles", "stalls"])
def test_an_answer_that_never_ends_is_given_up(server: Server, world: World, every_s: float) -> None:
    world.limits = {"socket_s": 0.3, "answer_s": 0.5, "attempts": 2}
    server.answer = lambda request: Reply(raw=trickle(every_s))
    began = time.monotonic()
    with pytest.raises(RegistrySilent, match="2 attempts"):
        tags(server, world)
    assert time.monotonic() - began < 5


def test_an_answer_that_is_too_large_is_not_read(server: Server, world: World) -> None:
    chunk = b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (1 << 20)
    server.answer = lambda request: Reply(raw=iter([chunk] * 20))
    with pytest.raises(RegistryTrouble, match="more than 16 MiB"):
        tags(server, world)


def test_nobody_there(world: World) -> None:
    with pytest.raises(RegistryTrouble, match=r"^127\.0\.0\.1:9: cannot be reached \(3 attempts\)"):
        world.registry().tags("127.0.0.1:9/team/app")


def test_stopping_does_not_wait_for_the_registry(server: Server, world: World) -> None:
    server.answer = lambda request: Reply(raw=trickle(10))

    def stop(seconds: float) -> None:
        raise Interrupted("stopped")

    began = time.monotonic()
    with pytest.raises(Interrupted):
        Exchange(pause=stop).ask(Ask(url=f"http://{server.host}/"))
    assert time.monotonic() - began < 10


# ---------------------------------------------------------------- redirects


def redirected(server: Server, to: str, *, status: int = 307) -> Exchange:
    server.answer = lambda request: Reply(status=status, headers={"Location": to}) if request.path == "/" else OK
    return Exchange(pause=lambda seconds: None, attempts=1)


def test_another_server_does_not_get_our_authorization(server: Server, other: Server) -> None:
    other.answer = lambda request: OK
    exchange = redirected(server, f"http://{other.host}/blob?signature=s")
    assert exchange.ask(Ask(url=f"http://{server.host}/", authorization="Bearer secret")).status == 200
    assert server.asked[0].headers["Authorization"] == "Bearer secret"
    assert "Authorization" not in other.asked[0].headers


def test_the_same_server_does(server: Server) -> None:
    exchange = redirected(server, "/there")
    exchange.ask(Ask(url=f"http://{server.host}/", authorization="Bearer secret"))
    assert [request.headers.get("Authorization") for request in server.asked] == ["Bearer secret"] * 2


@pytest.mark.parametrize("status", [302, 303, 307, 308])
def test_a_form_is_sent_to_no_other_server(server: Server, other: Server, status: int) -> None:
    """A token service that redirects got the refresh token of the user's login posted to any server that it named."""
    exchange = redirected(server, f"http://{other.host}/", status=status)
    with pytest.raises(RegistryTrouble, match="redirects to an unsafe address; not followed"):
        exchange.ask(Ask(url=f"http://{server.host}/", method="POST", form={"refresh_token": "secret"}))
    assert other.asked == []


@pytest.mark.parametrize(
    ("asked", "url", "may"),
    [
        ("https://r.io/", "https://blobs.io/x", True),
        ("https://r.io/", "http://r.io/x", False),
        ("http://localhost:5000/", "http://127.0.0.1:6000/x", True),
        ("http://localhost:5000/", "http://r.io/token", False),
        ("http://localhost:5000/", "https://r.io/token", True),
        ("http://index.lan/", "http://index.lan/x", True),
        ("http://index.lan/", "http://other.lan/x", False),
        ("http://localhost/", "http://localhost.evil.io/", False),
    ],
)
def test_plain_http_leads_to_no_other_machine(asked: str, url: str, may: bool) -> None:
    """A registry on this machine named a token service elsewhere, which got the login in plain text."""
    assert may_lead(asked, url) is may


def test_an_answer_of_more_values_than_anything_has_is_not_read(
    server: Server, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 MiB of empty lists take a gigabyte once they are parsed."""
    monkeypatch.setattr("harness.registry.bounded_http.MOST_VALUES", 1000)
    server.answer = lambda request: Reply(body=b'{"tags": [' + b"[]," * 1000)
    with pytest.raises(RegistryTrouble, match="answers with more than 1000 values; not read"):
        tags(server, world)


def test_a_circle_is_left(server: Server) -> None:
    exchange = redirected(server, "/")
    with pytest.raises(RegistryTrouble, match="redirects too many times"):
        exchange.ask(Ask(url=f"http://{server.host}/"))
    assert len(server.asked) == 5


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://x/y", "http://[bad", "//", "gopher:x"])
def test_an_address_that_is_none(server: Server, to: str) -> None:
    with pytest.raises(RegistryTrouble):
        redirected(server, to).ask(Ask(url=f"http://{server.host}/"))


def test_a_login_of_netrc_is_not_used(server: Server, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = world.home / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password hunter2\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    server.answer = lambda request: OK
    tags(server, world)
    assert "Authorization" not in server.asked[0].headers


# ---------------------------------------------------------------- certificates are accepted as by Docker


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Make a self-signed certificate and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = self_signed(key, "tests", here, x509.BasicConstraints(ca=True, path_length=0))
    path = tmp_path / "both.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def secured(certificate: Path) -> Iterator[Server]:
    server = Server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.answer = lambda request: OK
    yield from started(server)


def test_on_this_machine_any_certificate_will_do(secured: Server, world: World) -> None:
    assert world.registry().tags(f"{secured.host}/team/app") == ("1",)


def test_elsewhere_it_must_be_trusted(secured: Server) -> None:
    exchange = Exchange(pause=lambda seconds: None, attempts=3)
    with pytest.raises(
        RegistryTrouble, match=r"its certificate is not trusted; put its authority's certificate into /etc/docker"
    ):
        exchange.ask(Ask(url=f"https://{secured.host}/"))
    assert exchange.requests == 1, "it will not be trusted the next time either"


def test_an_authority_in_certs_d_is_trusted(secured: Server, world: World, certificate: Path) -> None:
    folder = world.home / "certs.d" / secured.host
    folder.mkdir(parents=True)
    (folder / "ca.crt").write_bytes(certificate.read_bytes())
    assert world.registry().tags(f"{secured.host}/team/app") == ("1",)


def test_a_safe_address_does_not_lead_to_one_that_is_not(secured: Server, server: Server, certificate: Path) -> None:
    server.answer = lambda request: OK
    secured.answer = lambda request: Reply(status=307, headers={"Location": f"http://{server.host}/"})
    question = Ask(url=f"https://{secured.host}/", verify=str(certificate), authorization="Bearer secret")
    with pytest.raises(RegistryTrouble, match="redirects to an unsafe address; not followed"):
        Exchange(pause=lambda seconds: None).ask(question)
    assert server.asked == []
