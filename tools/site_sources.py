"""A MkDocs hook that makes pages of the site from repository files to which the pages link.

Links in `docs/` are relative, so that they work in a checkout and on a forge: `../examples/quickstart.yaml`. The site
is made only from `docs/`, where such a link would lead nowhere. The hook therefore makes a page below `source/` for
each file outside `docs/` that a page links to, and changes the links to lead there. It leaves a link to a file that
does not exist unchanged: MkDocs then warns, and `mkdocs build --strict` fails. The hook also warns of nested lists that
a forge shows as such and MkDocs does not.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files

WARN = get_plugin_logger("sources").warning
ROOT = Path(__file__).parents[1]
DOCS, SOURCE = "docs", "source"
LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)\s#]+)(#[^)\s]*)?(?=\))")
LANGUAGES = {".cpp": "cpp", ".py": "python", ".service": "ini", ".timer": "ini", ".yaml": "yaml", ".yml": "yaml"}
MISREAD = {
    "indent by four spaces, or it leaves its list": re.compile(r"(?:\n\n {1,3}(?! )|\n {1,3}(?:[-*]|\d+\.) )(.*)"),
    "leave an empty line before it, or it is no item": re.compile(r"\n\n {4}.*(?:\n {4}.*)*\n((?:[-*]|\d+\.) .*)"),
}
"""A list that a forge shows as a list, and MkDocs does not."""
FENCED = re.compile(r"^( *)(```+).*?^\1\2", re.DOTALL | re.MULTILINE)
ALWAYS = ("CONTRIBUTING.md",)
"""Files outside `docs/` that are in the navigation."""


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file that is linked to, and for the files to which these link in turn."""
    pages = [f"{DOCS}/{file.src_uri}" for file in files.documentation_pages()]
    waiting = [*ALWAYS, *(target for page in pages for target in _outside(page))]
    made: set[str] = set()
    while waiting:
        target = waiting.pop()
        if target not in made:
            made.add(target)
            files.append(File.generated(config, _place(target), content=_content(target)))
            waiting += _outside(target) if target.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change the links of a page to lead to the site's own pages."""
    place = page.file.src_uri
    origin = place.removeprefix(f"{SOURCE}/") if place.startswith(f"{SOURCE}/") else f"{DOCS}/{place}"
    if not (ROOT / origin).is_file():  # the page shows a file that is no Markdown: its text is not ours to change
        return markdown
    plain = FENCED.sub(r"\1code", markdown)
    for remedy, pattern in MISREAD.items():
        for found in pattern.finditer(plain):
            WARN(f"{origin}: {remedy}: {found[1][:60]!r}")

    def led(link: re.Match[str]) -> str:
        target = _target(origin, link[1])
        if target is None:
            return link[0]
        return posixpath.relpath(_place(target), posixpath.dirname(place) or ".") + (link[2] or "")

    return LINK.sub(led, markdown)


def _outside(origin: str) -> list[str]:
    """The files outside `docs/` that a Markdown file of the repository links to."""
    targets = (_target(origin, link[1]) for link in LINK.finditer((ROOT / origin).read_text(encoding="utf-8")))
    return [target for target in targets if target is not None and not target.startswith(f"{DOCS}/")]


def _target(origin: str, link: str) -> str | None:
    """The file that a link in `origin` names, by its path in the repository; None if there is none."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))
    return path if (ROOT / path).is_file() and not path.startswith("..") else None


def _place(target: str) -> str:
    """Where the site has a file of the repository, as MkDocs names its sources."""
    if target.startswith(f"{DOCS}/"):
        return target.removeprefix(f"{DOCS}/")
    return f"{SOURCE}/{target}" if target.endswith(".md") else f"{SOURCE}/{target}.md"


def _content(target: str) -> str:
    """The Markdown of the page that shows a file."""
    text = (ROOT / target).read_text(encoding="utf-8")
    if target.endswith(".md"):
        return text
    language = LANGUAGES.get(PurePosixPath(target).suffix, "text")
    return f"# {target}\n\n````{language}\n{text.rstrip()}\n````\n"
