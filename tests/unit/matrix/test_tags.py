"""`tags: {match, from, to}`: the history consists of the tags that the registry has when the file is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.errors import InfrastructureError, MatrixError
from harness.matrix import load_matrix
from harness.model import Matrix, Pull
from harness.registry.bounded_http import RegistryDenied, RegistryTrouble
from tests.unit.matrix.conftest import GOOD, FakeIndex

HELD = ("latest", "22.12-tf1-py3", "20.12-tf1-py3", "23.03-tf1-py3", "22.12-tf2-py3", "21.02-tf1-py3")


@dataclass
class FakeTags:
    held: tuple[str, ...] = HELD
    trouble: RegistryTrouble | None = None
    asked: list[str] = field(default_factory=list)

    def tags(self, repository: str) -> tuple[str, ...]:
        self.asked.append(repository)
        if self.trouble:
            raise self.trouble
        return self.held


Read = Callable[..., Matrix]


@pytest.fixture
def read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """read(tags, held=…) reads the good file with these tags instead of its list."""
    monkeypatch.chdir(folder)

    def run(tags: str, source: FakeTags | None = None) -> Matrix:
        text = GOOD.replace('["20.12", "22.12"]', tags).replace('baseline: {tags: "20.12"}\n', "")
        Path("matrix.yaml").write_text(text)
        return load_matrix(Path("matrix.yaml"), environ={}, index=FakeIndex(), tags=source or FakeTags())

    return run


def test_a_range_is_what_the_registry_holds_oldest_first(read: Read) -> None:
    source = FakeTags()
    images = read('{match: "*-tf1-py3", from: 20.12, to: 22.12}', source).series[0].images
    assert [image.version for image in images] == ["20.12-tf1-py3", "21.02-tf1-py3", "22.12-tf1-py3"]
    assert images[0].source == Pull(reference="registry.local/tensorflow:20.12-tf1-py3")
    assert str(images[0].where) == "matrix.yaml:5: series.tags.tags"
    assert source.asked == ["registry.local/tensorflow"]


def test_a_list_asks_nobody(read: Read) -> None:
    source = FakeTags()
    read('["20.12"]', source)
    assert source.asked == []


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        (
            '{match: "*-tf1-py3", from: "24"}',
            "matrix.yaml:5: series.tags.tags: no tag of registry.local/tensorflow matches '*-tf1-py3' from 24; "
            "newest of them: 20.12-tf1-py3, 21.02-tf1-py3, 22.12-tf1-py3, 23.03-tf1-py3",
        ),
        ('{match: "*-tf3"}', "matches '*-tf3'; it has 6 tags: latest, 22.12-tf1-py3, 20.12-tf1-py3, 23.03-tf1-py3, …"),
        (
            '{match: "*", to: newest}',
            "matrix.yaml:5: series.tags.tags.to: 'newest' is not a version; write one such as",
        ),
    ],
)
def test_a_range_without_tags_says_what_there_is(read: Read, tags: str, says: str) -> None:
    with pytest.raises(MatrixError) as caught:
        read(tags)
    assert says in str(caught.value)


def test_a_repository_that_is_not_there_is_an_error_of_the_file(read: Read) -> None:
    with pytest.raises(MatrixError, match=r"matrix\.yaml:5: series\.tags\.tags: registry\.local: has no repository"):
        read('{match: "*"}', FakeTags(trouble=RegistryDenied("registry.local: has no repository")))


def test_a_registry_that_is_silent_is_not(read: Read) -> None:
    """It has another exit code, because tomorrow the same file may be fine."""
    with pytest.raises(
        InfrastructureError, match=r"^matrix\.yaml:5: series\.tags\.tags: registry\.local: is down"
    ) as caught:
        read('{match: "*"}', FakeTags(trouble=RegistryTrouble("registry.local: is down")))
    assert caught.value.exit_code == 3
