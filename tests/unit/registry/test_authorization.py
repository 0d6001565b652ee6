"""Logins: none, a key, a credential helper; and no message ever contains them."""

from __future__ import annotations

import base64
import json
import logging
import pwd
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.registry.authorization import Login, login_of, read_challenges, token_url
from harness.registry.bounded_http import RegistryDenied, RegistryTrouble
from tests.players.servers import Reply, Request, Server, World

SECRET = "hunter2-of-the-registry"
KEY = base64.b64encode(f"$oauthtoken:{SECRET}".encode()).decode()
TAGS = Reply(headers={"Content-Type": "application/json"}, body=b'{"tags": ["1"]}')


def guarded(server: Server, challenge: str, *, accepts: str) -> None:
    """Return a registry that accepts the token `accepts`, and its token service, which gives that token to everyone."""

    def answer(request: Request) -> Reply:
        if request.path.startswith("/proxy_auth"):
            return Reply(body=json.dumps({"token": accepts.removeprefix("Bearer ")}).encode())
        if request.headers.get("Authorization") == accepts:
            return TAGS
        return Reply(status=401, headers={"WWW-Authenticate": challenge.format(host=server.host)})

    server.answer = answer


NVCR = [
    'Bearer realm="http://{host}/proxy_auth",scope=""',
    'Bearer realm="http://{host}/proxy_auth?scope=repository:nvidia/tensorflow:pull,push"',
]


@pytest.mark.parametrize("challenge", NVCR)
@pytest.mark.parametrize("login", [True, False])
def test_both_forms_of_nvcr_with_and_without_a_key(server: Server, world: World, challenge: str, login: bool) -> None:
    guarded(server, challenge, accepts="Bearer abc")
    if login:
        world.docker_config(json.dumps({"auths": {server.host: {"auth": KEY}}}))
    registry = world.registry()
    assert registry.tags(f"{server.host}/nvidia/tensorflow") == ("1",)
    token = server.asked[1]
    assert token.path == "/proxy_auth?scope=repository:nvidia/tensorflow:pull"
    assert token.headers.get("Authorization") == (f"Basic {KEY}" if login else None)
    assert "Authorization" not in server.asked[0].headers
    registry.tags(f"{server.host}/nvidia/tensorflow")
    assert len(server.asked) == 4, "a token is used again"


def test_a_token_that_has_expired_is_renewed(server: Server, world: World) -> None:
    guarded(server, NVCR[0], accepts="Bearer first")
    registry = world.registry()
    registry.tags(f"{server.host}/nvidia/tensorflow")
    guarded(server, NVCR[0], accepts="Bearer second")
    assert registry.tags(f"{server.host}/nvidia/tensorflow") == ("1",)


def test_basic(server: Server, world: World) -> None:
    guarded(server, 'Basic realm="us"', accepts=f"Basic {KEY}")
    with pytest.raises(RegistryDenied, match=f"requires a login for team/app; run `docker login {server.host}`"):
        world.registry().tags(f"{server.host}/team/app")
    world.docker_config(json.dumps({"auths": {f"https://{server.host}": {"auth": KEY}}}))
    assert world.registry().tags(f"{server.host}/team/app") == ("1",)


def test_a_login_goes_to_no_other_machine_in_plain_text(server: Server, world: World) -> None:
    """Anyone who listens on the network would get it."""
    guarded(server, 'Bearer realm="http://registry.example/token",service="s"', accepts="Bearer abc")
    world.docker_config(json.dumps({"auths": {server.host: {"auth": KEY}}}))
    with pytest.raises(RegistryTrouble, match="names no token service that is safe to ask"):
        world.registry().tags(f"{server.host}/team/app")


def test_an_identity_token_is_exchanged(server: Server, world: World) -> None:
    guarded(server, 'Bearer realm="http://{host}/proxy_auth",service="s"', accepts="Bearer abc")
    world.docker_config(json.dumps({"auths": {server.host: {"identitytoken": SECRET}}}))
    assert world.registry().tags(f"{server.host}/team/app") == ("1",)
    form = parse_qs(server.asked[1].body.decode())
    assert (form["grant_type"], form["refresh_token"]) == (["refresh_token"], [SECRET])


@pytest.mark.parametrize("challenge", [*NVCR, 'Basic realm="us"', "", "Negotiate", 'Bearer realm=""'])
def test_a_registry_that_is_never_content_is_left(server: Server, world: World, challenge: str) -> None:
    """It answers 401 every time, and is asked only twice."""
    guarded(server, challenge, accepts="Bearer abc")
    inner = server.answer
    server.answer = lambda request: inner(Request(method="GET", path=request.path, headers={}))
    world.docker_config(json.dumps({"auths": {server.host: {"auth": KEY}}}))
    with pytest.raises(RegistryTrouble, match=f"^{server.host}: ") as caught:
        world.registry().tags(f"{server.host}/team/app")
    assert len(server.asked) <= 3
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, b"", "rejects the login that Docker has"),
        (200, b"{}", "does not respond like a token service"),
        (200, b"<html>", "does not respond like a token service"),
        (200, b'{"token": "a\\r\\nX-Evil: 1"}', "does not respond like a token service"),
        (404, b'{"token": "a"}', "does not respond like a token service"),
    ],
)
def test_a_token_service_that_does_not_work(server: Server, world: World, status: int, body: bytes, says: str) -> None:
    def answer(request: Request) -> Reply:
        if request.path.startswith("/proxy_auth"):
            return Reply(status=status, body=body)
        return Reply(status=401, headers={"WWW-Authenticate": NVCR[0].format(host=server.host)})

    server.answer = answer
    world.docker_config(json.dumps({"auths": {server.host: {"auth": KEY}}}))
    with pytest.raises(RegistryTrouble, match=says):
        world.registry().tags(f"{server.host}/team/app")


def test_403_is_not_asked_again(server: Server, world: World) -> None:
    server.answer = lambda request: Reply(status=403)
    with pytest.raises(RegistryDenied, match=r"denies access to team/app \(HTTP 403\)"):
        world.registry().tags(f"{server.host}/team/app")
    assert len(server.asked) == 1


def test_secrets_stay_out_of_logs_and_representations(
    server: Server, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    guarded(server, NVCR[0], accepts="Bearer token-of-theirs")
    world.docker_config(json.dumps({"auths": {server.host: {"auth": KEY}}}))
    world.registry().tags(f"{server.host}/team/app")
    login = login_of(server.host, environ={"HOME": str(world.home)})
    shown = caplog.text + repr(login)
    assert login == Login(user="$oauthtoken", password=SECRET)
    assert not [secret for secret in (SECRET, KEY, "token-of-theirs") if secret in shown]


# ---------------------------------------------------------------- Docker's configuration


def helper(world: World, script: str) -> None:
    program = world.home / "docker-credential-mine"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    world.environ["PATH"] = f"{world.home}:/usr/bin:/bin"


def login(world: World, host: str = "nvcr.io") -> Login | None:
    return login_of(host, environ={"HOME": str(world.home), **world.environ})


def test_a_user_without_a_home_has_no_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user has no entry in passwd, and may have no HOME: a registry that asks for a login was a
    traceback."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert login_of("nvcr.io", environ={}) is None


@pytest.mark.parametrize("config", [{"credsStore": "mine"}, {"credHelpers": {"nvcr.io": "mine"}}])
def test_helpers_are_asked_by_a_pipe(world: World, config: dict[str, object]) -> None:
    helper(
        world, f"""read host; [ "$*" = get ] && echo "{{\\"Username\\": \\"$host\\", \\"Secret\\": \\"{SECRET}\\"}}" """
    )
    world.docker_config(json.dumps({**config, "auths": {"nvcr.io": {}}}))
    assert login(world) == Login(user="nvcr.io", password=SECRET)


def test_the_hub_has_a_name_of_its_own(world: World) -> None:
    world.docker_config(json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": KEY}}}))
    assert login(world, "docker.io") == Login(user="$oauthtoken", password=SECRET)
    assert login(world, "nvcr.io") is None


def test_a_helper_may_keep_identity_tokens(world: World) -> None:
    helper(world, f"""echo '{{"Username": "<token>", "Secret": "{SECRET}"}}'""")
    world.docker_config('{"credsStore": "mine"}')
    assert login(world) == Login(identity=SECRET)


def test_a_helper_without_an_entry_leaves_it_to_the_file(world: World) -> None:
    helper(world, "echo credentials not found in native keychain; exit 1")
    world.docker_config(json.dumps({"credsStore": "mine", "auths": {"nvcr.io": {"auth": KEY}}}))
    assert login(world) == Login(user="$oauthtoken", password=SECRET)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (f"echo the secret is {SECRET} >&2; exit 3", "docker-credential-mine: exited with 3"),
        (f"echo {SECRET}", "does not respond like a credential helper"),
    ],
)
def test_a_helper_that_fails_is_named_and_its_words_are_not(world: World, script: str, says: str) -> None:
    helper(world, script)
    world.docker_config('{"credsStore": "mine"}')
    with pytest.raises(RegistryTrouble, match=says) as caught:
        login(world)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("{", "is not a JSON object; repair it"),
        ("[]", "is not a JSON object; repair it"),
        ('{"auths": {"nvcr.io": {"auth": "%%%"}}}', r"auths\.nvcr\.io: cannot be read"),
        ('{"auths": {"nvcr.io": {"auth": "bm9jb2xvbg=="}}}', r"auths\.nvcr\.io: cannot be read"),
        ('{"credsStore": "no-such"}', "docker-credential-no-such, which is not on the PATH"),
    ],
)
def test_a_configuration_that_cannot_be_read(world: World, config: str, says: str) -> None:
    world.docker_config(config)
    with pytest.raises(RegistryTrouble, match=says):
        login(world)


def test_no_configuration_is_nobody(tmp_path: Path) -> None:
    assert login_of("nvcr.io", environ={"DOCKER_CONFIG": str(tmp_path)}) is None


# ---------------------------------------------------------------- challenges as registries send them


TOKEN = "scope=repository:nvidia/tensorflow:pull"


@pytest.mark.parametrize(
    ("header", "url"),
    [
        ('Bearer realm="https://nvcr.io/proxy_auth",scope=""', f"https://nvcr.io/proxy_auth?{TOKEN}"),
        (
            'Bearer realm="https://nvcr.io/proxy_auth?scope=repository:nvidia/tensorflow:pull,push"',
            f"https://nvcr.io/proxy_auth?{TOKEN}",
        ),
        (
            'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:x:pull"',
            f"https://auth.docker.io/token?service=registry.docker.io&{TOKEN}",
        ),
        ("bearer realm=https://plain/token , service=a", f"https://plain/token?service=a&{TOKEN}"),
    ],
)
def test_where_a_token_is_had(header: str, url: str) -> None:
    assert token_url(read_challenges(header)["bearer"], "nvidia/tensorflow") == url


def test_several_challenges_in_one_header() -> None:
    found = read_challenges('Basic realm="a, \\"b\\"", Bearer realm="https://x/t",service="s"')
    assert found == {"basic": {"realm": 'a, "b"'}, "bearer": {"realm": "https://x/t", "service": "s"}}


@given(st.text(alphabet=st.sampled_from('Basic Bearer realm=",\\ x;\x00é'), max_size=80))
def test_no_header_is_too_strange(header: str) -> None:
    assert "" not in read_challenges(header)
