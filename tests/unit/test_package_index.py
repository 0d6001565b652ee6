"""The package index: what it returns, and the errors if it does not answer."""

from __future__ import annotations

import base64
import gzip
import json
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from harness.errors import MatrixError
from harness.matrix import load_matrix
from harness.package_index import (
    File,
    IndexSilent,
    PackageIndex,
    PackageRelease,
    _page,
    in_range,
    matching,
    versions_around,
)
from harness.registry.bounded_http import Exchange, Response
from tests.players.servers import Reply, Server, started

JSON_TYPE = "application/vnd.pypi.simple.v1+json"


def wheel(version: str, tags: str, **more: object) -> dict[str, object]:
    return {"filename": f"my_tool-{version}-{tags}.whl", "url": "x", "hashes": {}, **more}


FILES = [
    wheel("1.0", "py2.py3-none-any"),
    {"filename": "my-tool-1.1.tar.gz", "url": "x", "hashes": {}, "yanked": "broken"},
    wheel("1.2", "cp311-cp311-manylinux_2_17_x86_64", **{"requires-python": ">=3.11"}),
    wheel("1.3", "cp37-abi3-manylinux2014_x86_64", **{"requires-python": ">=3.7.1"}),
    wheel("1.4", "cp311-cp311-win_amd64"),
    wheel("1.5", "cp37-cp37m-linux_x86_64", **{"requires-python": "not a specifier"}),
    wheel("1.10", "py3-none-any"),
    wheel("2.0rc1", "py3-none-any"),
    {"filename": "my_tool-0.1-py2.7.egg", "url": "x", "hashes": {}},
    {"filename": "other-9.0.tar.gz", "url": "x", "hashes": {}},
]


def index_of(answer: Callable[[str], Reply]) -> Iterator[Server]:
    """Run an index that answers each name of a package."""
    server = Server()
    server.answer = lambda request: answer(request.path.strip("/").split("/")[-1])
    yield from started(server)


def url_of(server: Server, login: str = "") -> str:
    return f"http://{login}{server.host}/simple/"


@pytest.fixture
def server() -> Iterator[Server]:
    """Run an index with one package, my-tool, and a package `broken` that answers with HTTP 500."""

    def answer(name: str) -> Reply:
        status = {"my-tool": 200, "broken": 500, "garbled": 200}.get(name, 404)
        page = {"meta": {"api-version": "1.0"}, "name": name, "files": FILES if status == 200 else []}
        body = b"{" if name == "garbled" else json.dumps(page).encode()
        return Reply(status=status, headers={"Content-Type": JSON_TYPE}, body=body)

    yield from index_of(answer)


def texts(releases: list[PackageRelease]) -> list[str]:
    return [str(release.version) for release in releases]


def test_releases_are_oldest_first_and_asked_for_once(server: Server) -> None:
    index = PackageIndex([url_of(server)])
    releases = index.releases("My_Tool")
    assert texts(list(releases)) == ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.10", "2.0rc1"]
    assert [str(release.version) for release in releases if release.yanked] == ["1.1"]
    assert index.releases("my-tool") == releases
    assert [request.path for request in server.asked] == ["/simple/my-tool/"]


@pytest.mark.parametrize(
    ("python", "specifier", "expected"),
    [
        ("3.11", ">=1.0", ["1.0", "1.1", "1.2", "1.3", "1.10"]),
        ("3.10", ">=1.0", ["1.0", "1.1", "1.3", "1.10"]),
        ("3.7", ">=1.0", ["1.0", "1.1", "1.3", "1.5", "1.10"]),
        ("3.7.0", ">=1.2", ["1.5", "1.10"]),
        ("3.11", ">=1.5,!=1.10", []),
        ("3.11", ">=1.10,<=2.0rc1", ["1.10", "2.0rc1"]),
    ],
)
def test_ranges(server: Server, python: str, specifier: str, expected: list[str]) -> None:
    releases = PackageIndex([url_of(server)]).releases("my-tool")
    assert texts(in_range(releases, SpecifierSet(specifier), python=python)) == expected


def test_package_that_is_not_there(server: Server) -> None:
    assert PackageIndex([url_of(server)]).releases("nothing") == ()


@pytest.mark.parametrize(
    ("name", "text"), [("broken", "answers with HTTP 500"), ("garbled", "does not respond like a package index")]
)
def test_trouble_never_shows_the_password(server: Server, name: str, text: str) -> None:
    url = url_of(server, "user:s3cret@")
    with pytest.raises(IndexSilent, match=rf"^127\.0\.0\.1:\d+: {text}") as caught:
        PackageIndex([url]).releases(name)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    assert "Authorization" in server.asked[0].headers


def test_index_that_does_not_answer_is_not_waited_for_again() -> None:
    index = PackageIndex(["http://127.0.0.1:9/simple/"])
    with pytest.raises(IndexSilent, match=r"^127\.0\.0\.1:9: cannot be reached$") as first:
        index.releases("x")
    with pytest.raises(IndexSilent) as second:
        index.releases("y")
    assert second.value is first.value


def test_environment_names_the_indexes_and_folders(server: Server, tmp_path: Path) -> None:
    (tmp_path / "my_tool-3.0-py3-none-any.whl").touch()
    (tmp_path / "notes.txt").touch()
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        index = PackageIndex.from_environ({name: url_of(server), "PIP_FIND_LINKS": f"{tmp_path} https://files.local"})
        assert str(index.releases("my-tool")[-1].version) == "3.0"
    several = {"PIP_INDEX_URL": url_of(server), "UV_FIND_LINKS": f"https://files.local,{tmp_path}"}
    assert str(PackageIndex.from_environ(several).releases("my-tool")[-1].version) == "3.0"
    extra = PackageIndex.from_environ({"PIP_INDEX_URL": url_of(server), "UV_INDEX": f"own={url_of(server)}"})
    assert len(extra.releases("my-tool")[0].files) == 2


HOSTILE = {
    "packed": "answers with more than 32 MiB",
    "values": "answers with more than 2000000 values",
    "drip": "did not finish its answer within 1 s",
    "files": "lists more than 100 files of one package",
    "nested": "does not respond like a package index",
    "odd": "does not respond like a package index",
    "away": "redirects to an unsafe address",
}


def dripping() -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n\r\n"
    for _ in range(200):
        time.sleep(0.05)
        yield b" "


@pytest.fixture
def hostile() -> Iterator[str]:
    """Run an index whose answers fill the memory, or never end."""
    entry = b'{"filename":"my_tool-%d.tar.gz"}'
    bodies = {
        "packed": gzip.compress(bytes(33 << 20)),
        "values": b'{"files":[' + b"[]," * 1_100_000,
        "files": b'{"files":[' + b",".join(entry % number for number in range(101)) + b"]}",
        "nested": b'{"files":' * 5000,
        "odd": b'{"files": [{"filename": 1}]}',
        "long": b'{"files":[{"filename":"long-%s.tar.gz"},{"filename":"long-1.0.tar.gz",'
        b'"requires-python":">=%s"}]}' % (b"9" * 5000, b"9" * 5000),
    }
    more = {"packed": {"Content-Encoding": "gzip"}, "away": {"Location": "file:///etc/passwd"}}

    def answer(name: str) -> Reply:
        headers = {"Content-Type": JSON_TYPE, **more.get(name, {})}
        raw = dripping() if name == "drip" else None
        return Reply(status=302 if name == "away" else 200, headers=headers, body=bodies.get(name, b""), raw=raw)

    yield from map(url_of, index_of(answer))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_index_is_one_line(hostile: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5 MB of gzip became 4.4 GB in the harness, and an index that sends slowly was read without end."""
    monkeypatch.setattr("harness.package_index.MOST_FILES", 100)
    index = PackageIndex([hostile], exchange=Exchange(attempts=1, answer_s=1.0 if name == "drip" else 60.0))
    with pytest.raises(IndexSilent) as caught:
        index.releases(name)
    assert str(caught.value).partition(": ")[2] == HOSTILE[name]


def test_numbers_of_thousands_of_digits_are_no_versions(hostile: str, tmp_path: Path) -> None:
    """Python refuses to read a number of 5,000 digits: one file of one package ended every command with a traceback."""
    (release,) = PackageIndex([hostile]).releases("long")
    assert str(release.version) == "1.0"
    assert release.usable_by("3.11")
    path = tmp_path / "matrix.yaml"
    for asked in (f"['1.{'9' * 5000}']", f"'>={'9' * 5000}'"):
        text = f"version: 1\nseries: {{s: {{install: ['long=={{version}}'], versions: {asked}}}}}\n"
        path.write_text(text + "scenarios: {x: {command: [a]}}\n")
        with pytest.raises(MatrixError, match=r"is not a version of|is neither a list nor a range"):
            load_matrix(path, environ={"PIP_INDEX_URL": hostile})


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<a href="../../x/a-1.0.tar.gz#sha256=1">a-1.0.tar.gz</a><br/>', File(name="a-1.0.tar.gz")),
        ("<A HREF=x data-yanked>a-1.0.tar.gz</A>", File(name="a-1.0.tar.gz", yanked=True)),
        ('<a data-yanked="" href="x">\n a-1.0.tar.gz\n</a>', File(name="a-1.0.tar.gz", yanked=True)),
        (
            '<a href="x" data-requires-python="&gt;=3.6, &lt;4">a-1.0.tar.gz</a>',
            File(name="a-1.0.tar.gz", requires_python=">=3.6, <4"),
        ),
        (
            "<a href='x' data-requires-python='>=3.6' rel=\"internal\">a-1.0.tar.gz</a>",
            File(name="a-1.0.tar.gz", requires_python=">=3.6"),
        ),
        ('<a href="data-yanked">a-1.0+cu118.tar.gz</a>', File(name="a-1.0+cu118.tar.gz")),
    ],
)
def test_pages_in_html(page: str, expected: File) -> None:
    """Many private indexes, and those of single projects, answer only in HTML."""
    answer = Response(status=200, headers={"Content-Type": "text/html; charset=utf-8"}, body=page.encode())
    assert _page(answer, place="x") == [expected]


def test_a_page_of_broken_links_is_read_in_one_pass() -> None:
    """Quadratic time would block the harness for hours."""
    body = (b"<a " * 200_000) + (b'<a "' * 200_000) + b"<a x=" + b"'\"" * 200_000
    assert _page(Response(status=200, headers={"Content-Type": "text/html"}, body=body), place="x") == []


def test_a_login_goes_to_its_own_index_only(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Company indexes need a login, in the address or in ~/.netrc, as with pip and uv."""
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ada password pw\n")
    PackageIndex([url_of(server)]).releases("my-tool")
    PackageIndex([url_of(server, "a%40b:c@")]).releases("my-tool")
    passwords = [request.headers.get("Authorization") for request in server.asked]
    said = [base64.b64decode((each or "").removeprefix("Basic ")).decode() for each in passwords]
    assert said == ["ada:pw", "a@b:c"]


def test_matching_and_nearest() -> None:
    releases = [
        PackageRelease(version=Version(text), files=(File(name="x"),))
        for text in ("1.0", "1.1", "1.2+cu118", "1.3", "1.4")
    ]

    def found(text: str) -> str | None:
        release = matching(releases, Version(text))
        return str(release.version) if release else None

    assert (found("1.0.0"), found("1.2"), found("1.2+cu118")) == ("1.0", "1.2+cu118", "1.2+cu118")
    assert (found("1.2+cpu"), found("1.5")) == (None, None)
    assert versions_around(releases, Version("1.2.5")) == ["1.1", "1.2+cu118", "1.3", "1.4"]
    assert versions_around(releases, Version("0.1")) == ["1.0", "1.1", "1.2+cu118", "1.3"]
    assert versions_around(releases, Version("9")) == ["1.1", "1.2+cu118", "1.3", "1.4"]


def test_who_mistypes_a_release_is_not_offered_candidates() -> None:
    releases = [
        PackageRelease(version=Version(text), files=(File(name="x"),))
        for text in ("4.17.1", "4.17.3", "4.18.0a1", "4.18.0a2", "4.18.0", "4.18.1")
    ]
    assert versions_around(releases, Version("4.17.99")) == ["4.17.1", "4.17.3", "4.18.0", "4.18.1"]
    assert versions_around(releases, Version("4.18.0a9")) == ["4.18.0a1", "4.18.0a2", "4.18.0", "4.18.1"]
    assert versions_around(releases[2:4], Version("4.17.99")) == ["4.18.0a1", "4.18.0a2"], "there is nothing else"


def test_matrix_asks_the_index_of_its_environment(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    text = "version: 1\nseries: {s: {install: ['my-tool=={version}'], versions: VERSIONS}}\n"
    text += "scenarios: {x: {command: [a]}}\n"
    path.write_text(text.replace("VERSIONS", "'<1.2'"))
    matrix = load_matrix(path, environ={"PIP_INDEX_URL": url_of(server)})
    assert [(image.version, image.yanked) for image in matrix.series[0].images] == [("1.0", False), ("1.1", True)]
    path.write_text(text.replace("VERSIONS", "[1.0, 1.2.9, 1.10]"))
    with pytest.raises(MatrixError, match=r"no my-tool 1\.2\.9; nearest: 1\.1, 1\.2, 1\.3, 1\.4$"):
        load_matrix(path, environ={"PIP_INDEX_URL": url_of(server)})


@pytest.mark.index
def test_real_index() -> None:
    releases = PackageIndex.from_environ({}).releases("numpy")
    assert texts(in_range(releases, SpecifierSet(">=2.0,<2.1"), python="3.11")) == ["2.0.0", "2.0.1", "2.0.2"]
    assert texts(in_range(releases, SpecifierSet(">=2.0,<2.1"), python="3.8")) == []
