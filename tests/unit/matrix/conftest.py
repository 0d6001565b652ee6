"""A folder with a good matrix file, and an index that is queried without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from packaging.version import Version

from harness.matrix import load_matrix
from harness.model import Matrix
from harness.package_index import File, IndexSilent, PackageRelease

SCRIPT = '''"""One transform a step.

More words.
"""

PARAMS = {"op": ["rfft", "fft"], "n": [1, 2]}


def setup(op, n=1, *, flag=True):
    return lambda: None
'''

GOOD = """\
version: 1
series:
  tags:
    repository: registry.local/tensorflow
    tags: ["20.12", "22.12"]
  wheel:
    build: image
    arg: WHEEL
    versions: ["1.15.4+nv20.12", "1.15.5+nv22.12"]
  numpy:
    install: ["numpy=={version}", "six==1.16.0"]
    versions: ["2.0.0", "2.0.1"]
hosts:
  here: {engine: docker}
  venv: {engine: process}
scenarios:
  signal:
    script: signal.py
    params: {op: [rfft, fft], n: 1}
    limits: {leak: 0.5KiB}
    memory: 8GiB
  tool:
    command: [true-of-it, "--fast"]
exclude: [{series: tags, scenario: tool, why: "too long"}]
baseline: {tags: "20.12"}
trials: {least: 3, most: 8}
"""


@dataclass
class FakeIndex:
    """Versions by package name; `silent` makes the index unreachable. `wheels`: the tags of versions
    that have only a wheel. `asked` lists the queries."""

    packages: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: {"numpy": ("1.26.4", "2.0.0", "2.0.1", "2.1.0rc1", "2.1.0"), "pandas": ("2.0.0",)}
    )
    yanked: Sequence[str] = ()
    silent: bool = False
    wheels: Mapping[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def _file(self, name: str, version: str) -> str:
        tags = self.wheels.get(version)
        return f"{name}-{version}-{tags}.whl" if tags else f"{name}-{version}.tar.gz"

    def releases(self, name: str) -> tuple[PackageRelease, ...]:
        self.asked.append(name)
        if self.silent:
            raise IndexSilent("index.local does not answer")
        versions = self.packages.get(name, ())
        return tuple(
            PackageRelease(
                version=Version(text), files=(File(name=self._file(name, text), yanked=text in self.yanked),)
            )
            for text in versions
        )


Load = Callable[..., Matrix]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "signal.py").write_text(SCRIPT)
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "Dockerfile").write_text("FROM scratch\nARG WHEEL\n")
    return tmp_path


@pytest.fixture
def load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """load(text, environ=…, index=…) loads the text as matrix.yaml in the current folder."""
    monkeypatch.chdir(folder)

    def run(text: str | bytes, *, environ: Mapping[str, str] | None = None, index: FakeIndex | None = None) -> Matrix:
        content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        Path("matrix.yaml").write_bytes(content)
        return load_matrix(Path("matrix.yaml"), environ=environ or {}, index=index or FakeIndex())

    return run
