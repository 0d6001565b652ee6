"""The package index: what it says, and what is said when it says nothing."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from harness.errors import MatrixError
from harness.matrix import load_matrix
from harness.package_index import File, IndexSilent, PackageIndex, PackageRelease, in_range, matching, nearest

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


@dataclass
class Server:
    url: str
    asked: list[str] = field(default_factory=list)
    passwords: list[str | None] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    """An index with one package, my-tool, and a package `broken` that answers with HTTP 500."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known.asked.append(self.path)
            known.passwords.append(self.headers.get("Authorization"))
            name = self.path.strip("/").split("/")[-1]
            status = {"my-tool": 200, "broken": 500, "garbled": 200}.get(name, 404)
            page = {"meta": {"api-version": "1.0"}, "name": name, "files": FILES if status == 200 else []}
            body = b"{" if name == "garbled" else json.dumps(page).encode()
            self.send_response(status)
            self.send_header("Content-Type", JSON_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        known = Server(url=f"http://127.0.0.1:{http.server_port}/simple/")
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield known
        http.shutdown()
        thread.join()


def texts(releases: list[PackageRelease]) -> list[str]:
    return [str(release.version) for release in releases]


def test_releases_are_oldest_first_and_asked_for_once(server: Server) -> None:
    index = PackageIndex([server.url])
    releases = index.releases("My_Tool")
    assert texts(list(releases)) == ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.10", "2.0rc1"]
    assert [str(release.version) for release in releases if release.yanked] == ["1.1"]
    assert index.releases("my-tool") == releases
    assert server.asked == ["/simple/my-tool/"]


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
    releases = PackageIndex([server.url]).releases("my-tool")
    assert texts(in_range(releases, SpecifierSet(specifier), python=python)) == expected


def test_package_that_is_not_there(server: Server) -> None:
    assert PackageIndex([server.url]).releases("nothing") == ()


@pytest.mark.parametrize(
    ("name", "text"), [("broken", "answers with HTTP 500"), ("garbled", "does not answer as a package index")]
)
def test_trouble_never_shows_the_password(server: Server, name: str, text: str) -> None:
    url = server.url.replace("127.0.0.1", "user:s3cret@127.0.0.1")
    with pytest.raises(IndexSilent, match=rf"^127\.0\.0\.1 {text}") as caught:
        PackageIndex([url]).releases(name)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    assert server.passwords[0] is not None


def test_nobody_answers() -> None:
    with pytest.raises(IndexSilent, match=r"^127\.0\.0\.1 does not answer \(ConnectionError\)"):
        PackageIndex(["http://127.0.0.1:9/simple/"]).releases("x")


def test_index_that_does_not_answer_is_not_waited_for_again() -> None:
    index = PackageIndex(["http://127.0.0.1:9/simple/"])
    with pytest.raises(IndexSilent) as first:
        index.releases("x")
    with pytest.raises(IndexSilent) as second:
        index.releases("y")
    assert second.value is first.value


def test_environment_names_the_indexes_and_folders(server: Server, tmp_path: Path) -> None:
    (tmp_path / "my_tool-3.0-py3-none-any.whl").touch()
    (tmp_path / "notes.txt").touch()
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        index = PackageIndex.from_environ({name: server.url, "PIP_FIND_LINKS": f"{tmp_path} https://files.local"})
        assert str(index.releases("my-tool")[-1].version) == "3.0"
    several = {"PIP_INDEX_URL": server.url, "UV_FIND_LINKS": f"https://files.local,{tmp_path}"}
    assert str(PackageIndex.from_environ(several).releases("my-tool")[-1].version) == "3.0"
    extra = PackageIndex.from_environ({"PIP_INDEX_URL": server.url, "UV_INDEX": f"own={server.url}"})
    assert len(extra.releases("my-tool")[0].files) == 2


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
    assert nearest(releases, Version("1.2.5")) == ["1.1", "1.2+cu118", "1.3", "1.4"]
    assert nearest(releases, Version("0.1")) == ["1.0", "1.1", "1.2+cu118", "1.3"]
    assert nearest(releases, Version("9")) == ["1.1", "1.2+cu118", "1.3", "1.4"]


def test_matrix_asks_the_index_of_its_environment(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    text = "version: 1\nseries: {s: {install: ['my-tool=={version}'], versions: VERSIONS}}\n"
    text += "scenarios: {x: {command: [a]}}\n"
    path.write_text(text.replace("VERSIONS", "'<1.2'"))
    matrix = load_matrix(path, environ={"PIP_INDEX_URL": server.url})
    assert [(image.version, image.yanked) for image in matrix.series[0].images] == [("1.0", False), ("1.1", True)]
    path.write_text(text.replace("VERSIONS", "[1.0, 1.2.9, 1.10]"))
    with pytest.raises(MatrixError, match=r"no my-tool 1\.2\.9; nearest: 1\.1, 1\.2, 1\.3, 1\.4$"):
        load_matrix(path, environ={"PIP_INDEX_URL": server.url})


@pytest.mark.index
def test_real_index() -> None:
    releases = PackageIndex.from_environ({}).releases("numpy")
    assert texts(in_range(releases, SpecifierSet(">=2.0,<2.1"), python="3.11")) == ["2.0.0", "2.0.1", "2.0.2"]
    assert texts(in_range(releases, SpecifierSet(">=2.0,<2.1"), python="3.8")) == []
