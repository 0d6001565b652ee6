"""What all unit tests share. A chart of the same data is drawn once per process, because a drawing takes 0.1 s; and the
charts' script is a stub, because bundling it takes 1.5 s and no unit test runs it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import vl_convert


@pytest.fixture(scope="session", autouse=True)
def _drawn_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("vegalite_to_svg", "vegalite_to_png"):
            patch.setattr(vl_convert, name, _by_its_text(getattr(vl_convert, name)))
        yield


@pytest.fixture(scope="session", autouse=True)
def _script_of_the_charts() -> None:
    path = Path(os.environ["HARNESS_CACHE"], f"charts-{version('vl-convert-python')}.js")
    path.write_text("window.vegaEmbed = () => null;")
    path.chmod(0o644)


def _by_its_text(draw: Callable[..., Any]) -> Callable[..., Any]:
    @lru_cache(maxsize=256)
    def drawn(text: str, options: tuple[tuple[str, Any], ...]) -> Any:
        return draw(json.loads(text), **dict(options))

    return lambda definition, **options: drawn(json.dumps(definition), tuple(options.items()))
