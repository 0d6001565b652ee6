"""Challenges in the form in which registries send them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.registry.authorization import read_challenges

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
    (challenge,) = read_challenges(header)
    assert challenge.scheme == "bearer"
    assert challenge.token_url("nvidia/tensorflow") == url


def test_several_challenges_in_one_header() -> None:
    found = read_challenges('Basic realm="a, \\"b\\"", Bearer realm="https://x/t",service="s"')
    assert [(each.scheme, each.realm, each.service) for each in found] == [
        ("basic", 'a, "b"', ""),
        ("bearer", "https://x/t", "s"),
    ]


@given(st.text(alphabet=st.sampled_from('Basic Bearer realm=",\\ x;\x00é'), max_size=80))
def test_no_header_is_too_strange(header: str) -> None:
    for challenge in read_challenges(header):
        assert challenge.scheme
