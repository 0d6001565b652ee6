"""The site of `harness publish`: what its reader finds, and what a run from strangers cannot do to it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from harness.cli import cli
from harness.errors import UsageError
from harness.history import events, names, pages
from tests.players import build
from tests.players.pages import HOSTILE
from tests.unit.history import made

ATOM = "{http://www.w3.org/2005/Atom}"
VOID = {"meta", "link", "br", "img", "path", "circle", "polyline"}


def publish(runs: Path, site: Path, *more: str) -> Result:
    done = CliRunner().invoke(cli, ["publish", "--in", str(runs), "--out", str(site), *more])
    if done.exception and not isinstance(done.exception, UsageError | SystemExit):
        raise done.exception
    return done


def stamps(site: Path) -> dict[str, int]:
    return {str(path.relative_to(site)): path.stat().st_mtime_ns for path in site.rglob("*") if path.is_file()}


class Read(HTMLParser):
    """The links, tags and text of a page; every tag must be closed in the right place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(path: Path) -> Read:
    return Read(path.read_text())


def words(path: Path) -> str:
    return " ".join(read(path).text.split())


def test_it_shows_what_is_open_and_since_when(tmp_path: Path) -> None:
    runs, site = tmp_path / "reports", tmp_path / "site"
    last = made.three_days(runs)[2]
    publish(runs, site)
    front = words(site / "index.html")
    assert "Nothing is open." in front
    assert "✓ nothing open 3 runs 2026-03-03 04:00 bad, fixed in a newer version" in front, "one truth"
    told = words(site / "m-nightly/series-app.html")
    assert "fixed: app on local, pop size=8: memory leak since 1.2 (last good 1.1), fixed in 1.3" in told
    assert "2 new images, 1.0 to 1.1" in told
    assert "memory leak since 1.2" in words(site / "findings-2026.html")
    assert "found in 2026" in words(site / "findings.html")

    shutil.rmtree(last)
    publish(runs, site)
    for page in ("index.html", "findings.html", "m-nightly/index.html"):
        assert "memory leak since 1.2 (last good 1.1): 7.84 (7.83 to 7.85) KiB/step" in words(site / page)
    assert "✗ bad (1.2)" in words(site / "m-nightly/index.html")
    assert "1 open" in (site / "m-nightly/badge.svg").read_text()
    assert not (site / "findings-2026.html").exists()
    assert not (site / "m-nightly/run-20260303t040000z-0003.html").exists()


def test_without_runs_no_folder_is_left_and_the_advice_names_the_runs(tmp_path: Path) -> None:
    for runs in (tmp_path / "nowhere", tmp_path):
        done = CliRunner().invoke(cli, ["publish", "--in", str(runs), "--out", str(tmp_path / "site")])
        assert isinstance(done.exception, UsageError)
        assert "--in" in str(done.exception)
        assert "--out" not in str(done.exception)
    assert not (tmp_path / "site").exists()


def test_every_link_leads_to_a_page_of_the_site(tmp_path: Path) -> None:
    runs, site = tmp_path / "reports", tmp_path / "site"
    made.three_days(runs)
    made.write_run(runs, 4, {"1.0": made.good()}, matrix="Other Matrix", series="Serie/é")
    publish(runs, site)
    files = list(site.rglob("*.html"))
    assert len(files) >= 10
    for path in files:
        for link in read(path).links:
            page, _, anchor = link.partition("#")
            assert link.startswith("data:") or (path.parent / page).resolve().is_file(), f"{path}: {link}"
            assert not anchor or f'id="{anchor}"' in (path.parent / page).read_text(), f"{path}: {link}"


def test_a_new_run_touches_its_own_pages_only(tmp_path: Path) -> None:
    """Otherwise the whole site would be copied to a server each night."""
    runs, site = tmp_path / "reports", tmp_path / "site"
    made.three_days(runs)
    made.write_run(runs, 3, {"1.0": made.good()}, matrix="other")
    publish(runs, site)
    before = stamps(site)
    assert "0 of" in publish(runs, site).stdout
    assert stamps(site) == before

    made.write_run(runs, 5, {"1.3": made.good(), "1.4": made.good()})
    publish(runs, site)
    changed = {name for name, stamp in stamps(site).items() if before.get(name) != stamp}
    assert changed == {
        "index.html", "site.json", "runs-2026-03.html", "m-nightly/index.html", "m-nightly/series-app.html",
        "m-nightly/run-20260305t040000z-0005.html",
    }  # fmt: skip


def test_the_feed_tells_of_each_finding_and_fix_once(tmp_path: Path) -> None:
    runs, site = tmp_path / "reports", tmp_path / "site"
    made.three_days(runs)
    publish(runs, site, "--url", "https://ci.example/history")
    feed = ElementTree.parse(site / "feed.xml").getroot()
    entries = feed.findall(f"{ATOM}entry")
    assert [(entry.findtext(f"{ATOM}title") or "").split(":")[0] for entry in entries] == ["fixed", "found"]
    ids = [entry.findtext(f"{ATOM}id") for entry in entries]
    assert len(set(ids)) == 2
    shutil.rmtree(site)
    made.write_run(runs, 4, {"1.2": made.good(), "1.3": made.good()}, matrix="another")
    publish(runs, site, "--url", "https://ci.example/history")
    again = ElementTree.parse(site / "feed.xml").getroot()
    assert [entry.findtext(f"{ATOM}id") for entry in again.findall(f"{ATOM}entry")] == ids, "a reader shows them twice"
    assert again.findtext(f"{ATOM}id") == feed.findtext(f"{ATOM}id") == "https://ci.example/history/feed.xml"
    link = entries[0].find(f"{ATOM}link")
    assert link is not None
    assert link.get("href") == "https://ci.example/history/m-nightly/run-20260303t040000z-0003.html"
    assert feed.findtext(f"{ATOM}updated") == "2026-03-03T04:00:00+00:00"


def test_a_folder_with_other_files_stays_as_it_is(tmp_path: Path) -> None:
    runs, site = tmp_path / "reports", tmp_path / "site"
    made.three_days(runs)
    site.mkdir()
    (site / "index.html").write_text("mine")
    assert "holds other files; choose a new or an empty folder" in str(publish(runs, site).exception)
    assert (site / "index.html").read_text() == "mine"


@pytest.mark.parametrize("content", ['{"index.html": "my site"}', '["pages"]', '{"index.html": '])
def test_a_site_that_something_else_made_stays_as_it_is(tmp_path: Path, content: str) -> None:
    runs, site = tmp_path / "reports", tmp_path / "site"
    made.three_days(runs)
    site.mkdir()
    (site / "index.html").write_text("mine")
    (site / "site.json").write_text(content)
    assert "site.json: was not written by harness; choose a new or empty folder" in str(publish(runs, site).exception)
    assert (site / "index.html").read_text() == "mine"


def test_nothing_outside_of_the_site_is_written_or_removed(tmp_path: Path) -> None:
    runs, site = tmp_path / "reports", tmp_path / "site"
    made.three_days(runs)
    publish(runs, site)
    precious = tmp_path / "precious"
    precious.write_text("x")
    names = ("../precious", "/etc/none", "", "index.html/../../precious")
    (site / "site.json").write_text(json.dumps(dict.fromkeys(names, "a" * 64)))
    shutil.rmtree(site / "m-nightly")
    (tmp_path / "elsewhere").mkdir()
    (site / "m-nightly").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    done = CliRunner().invoke(cli, ["publish", "--in", str(runs), "--out", str(site)])
    assert "a link, which is not followed" in str(done.exception)
    (site / "m-nightly").unlink()
    publish(runs, site)
    assert precious.read_text() == "x"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_names_that_try_to_act_are_text(tmp_path: Path, text: str) -> None:
    runs, site = tmp_path / "reports", tmp_path / "site"
    name = f"s{text}"
    verdicts = {"1.0": made.good(), f"2{text}": made.bad()}
    found = made.begins("1.0", f"2{text}", series=name, variant=build.variant(name))
    made.write_run(runs, 1, verdicts, series=name, variant=build.variant(name), findings=[found])
    publish(runs, site)
    for path in site.rglob("*.html"):
        page = read(path)
        assert not page.tags & {"script", "img", "iframe"}
        assert all(not link.startswith(("javascript:", "//", "http")) for link in page.links)
        assert path.name.isascii()
    ElementTree.parse(site / "feed.xml")
    for path in site.rglob("*.svg"):
        ElementTree.parse(path)


def test_a_page_of_a_long_history_stays_small(tmp_path: Path) -> None:
    runs, site = tmp_path / "reports", tmp_path / "site"
    long = "x" * 200
    for day in range(1, 13):
        made.write_run(runs, day, {f"1.{day}.{number}-{long}": made.good() for number in range(60)}, series=long)
    publish(runs, site)
    sizes = {path.name: path.stat().st_size for path in site.rglob("*.html")}
    assert max(sizes.values()) <= 300_000, max(sizes.items(), key=lambda one: one[1])
    (series,) = (path for path in site.rglob("series-*.html"))
    assert f"{12 * 60 - pages.MOST_ROWS} older images are not shown" in words(series)


def test_a_fault_of_several_variants_is_counted_once(tmp_path: Path) -> None:
    """Three findings were counted in three ways: two in the report of the run, and one of them twice by variant."""
    runs, site = tmp_path / "reports", tmp_path / "site"
    for day, size in ((1, 8), (2, 9)):
        variant = build.variant("pop", size=size)
        found = replace(made.begins("1.1", "1.2"), variant=variant)
        verdicts = {"1.1": made.good(), "1.2": made.bad()}
        made.write_run(runs, day, verdicts, findings=[found], verdict="regression", variant=variant)
    publish(runs, site)
    assert "1 open" in (site / "m-nightly/badge.svg").read_text()
    told = words(site / "index.html")
    assert told.count("(and in 1 more row): memory leak since 1.2 (last good 1.1)") == 1
    assert "✗ 1 open" in told


def test_a_list_that_is_cut_says_of_how_many_and_where_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page with 250 of 613 findings looked as if it had all of them."""
    for name, most in {"MOST_ROWS": 2, "MOST_RUNS": 1, "MOST_EVENTS": 1}.items():
        monkeypatch.setattr(pages, name, most)
    runs, site = tmp_path / "reports", tmp_path / "site"
    made.three_days(runs)
    publish(runs, site)
    (run,) = site.rglob("run-20260302*.html")
    told = words(run)
    assert "Showing 1 of 2 cells; see the run's own report for all." in told
    assert "Showing 1 of 3 runs; see harness runs for all." in words(site / "m-nightly" / "index.html")
    (series,) = site.rglob("series-*.html")
    assert "Showing 1 of 5 events; see harness history for all." in words(series)


def test_many_histories_take_several_pages(tmp_path: Path) -> None:
    runs, site = tmp_path / "reports", tmp_path / "site"
    for number in range(1, 29):
        made.write_run(runs, number, {"1.0": made.good()}, variant=build.variant("v", size=number))
        made.write_run(runs, number, {"1.0": made.good()}, matrix="n", variant=build.variant("v", size=number))
    (runs / "n").rename(runs / "nightly2")
    for number in range(1, 29):
        path = runs / f"nightly2/202603{number:02}T040000Z-00{number:02}"
        path.rename(runs / f"nightly/202603{number:02}T050000Z-01{number:02}")
    publish(runs, site)
    assert not list(site.rglob("*~2.html"))
    for number in range(1, 21):
        made.write_run(runs, number, {"1.0": made.good()}, matrix="m", variant=build.variant("w", size=number))
        target = runs / f"nightly/202603{number:02}T060000Z-02{number:02}"
        (runs / f"m/202603{number:02}T040000Z-00{number:02}").rename(target)
    publish(runs, site)
    assert len(list(site.rglob("series-app~2.html"))) == 1
    for path in site.rglob("run-*.html"):
        (link,) = [link for link in read(path).links if "#" in link]  # 28 of these variants are on the second page
        page, _, anchor = link.partition("#")
        assert f'id="{anchor}"' in (path.parent / page).read_text()


def test_the_policy_allows_its_own_style_and_nothing_else(tmp_path: Path) -> None:
    runs, site = tmp_path / "reports", tmp_path / "site"
    made.three_days(runs)
    publish(runs, site)
    page = (site / "index.html").read_text()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert re.sub("sha256-[^']*", "sha256-…", policy.replace("&#39;", "'")) == (
        "default-src 'none'; style-src 'sha256-…'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert " style=" not in page


@pytest.mark.parametrize("name", [".", "..", "a/b", "A", "a" * 99, "é", "", "index.html", "x."])
def test_names_of_files_are_safe_and_their_own(name: str) -> None:
    made_of = names.slug(name)
    assert re.fullmatch(r"[a-z0-9][a-z0-9_.-]*[a-z0-9_-]", made_of)
    assert made_of not in {names.slug(f"{name}x"), names.slug(name.upper() + "y")}


def test_a_badge_is_a_small_picture() -> None:
    picture = events.badge_svg("<b>" + "x" * 99, "2 open", tone="bad")
    assert ElementTree.fromstring(picture).get("height") == "20"
    assert len(picture) < 1000


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "is not an address" in str(publish(tmp_path, tmp_path / "site", "--url", "javascript:x").exception)
