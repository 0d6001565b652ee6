"""Certificates are accepted as by Docker: any on this machine, otherwise trusted ones or those in `certs.d`."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from harness.registry.bounded_http import Exchange, ExchangeLimits, Question, RegistryTrouble
from tests.players.servers import Reply, Server, World, started

OK = Reply(headers={"Content-Type": "application/json"}, body=b'{"tags": ["1"]}')


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Make a self-signed certificate and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
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
    exchange = Exchange(pause=lambda seconds: None, patience=ExchangeLimits(attempts=3))
    with pytest.raises(
        RegistryTrouble, match=r"its certificate is not trusted; put its authority's certificate into /etc/docker"
    ):
        exchange.ask(Question(url=f"https://{secured.host}/"))
    assert exchange.requests == 1, "it will not be trusted the next time either"


def test_an_authority_in_certs_d_is_trusted(secured: Server, world: World, certificate: Path) -> None:
    folder = world.home / "certs.d" / secured.host
    folder.mkdir(parents=True)
    (folder / "ca.crt").write_bytes(certificate.read_bytes())
    assert world.registry().tags(f"{secured.host}/team/app") == ("1",)


def test_a_safe_address_does_not_lead_to_one_that_is_not(secured: Server, server: Server, certificate: Path) -> None:
    server.answer = lambda request: OK
    secured.answer = lambda request: Reply(status=307, headers={"Location": f"http://{server.host}/"})
    question = Question(url=f"https://{secured.host}/", verify=str(certificate), authorization="Bearer secret")
    with pytest.raises(RegistryTrouble, match="redirects to an unsafe address; not followed"):
        Exchange(pause=lambda seconds: None).ask(question)
    assert server.asked == []
