"""What a watch sees, runs and remembers, with registries and runs that are doubles."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from harness.errors import InfrastructureError, Interrupted, MatrixError, UsageError
from harness.history import looks as words
from harness.history.looks import ImageRef, RegistryLook
from harness.history.watch import WatchedMatrix
from harness.model import CellResult, CellVerdict, Finding, Plan, RunResult
from harness.registry.bounded_http import RegistryDenied, RegistryTrouble

MATRIX = """\
version: 1
name: nightly
series:
  ngc:
    repository: registry.local/app
    tags: {match: "*", from: "1"}
hosts: {here: {engine: docker}}
scenarios:
  tool: {command: ["true"]}
"""


@dataclass
class Registry:
    """Tags and the digests to which they point; it counts requests as a real registry would receive them."""

    held: dict[str, str]
    trouble: Exception | None = None
    requests: int = 0
    heads: list[str] = field(default_factory=list)

    def tags(self, repository: str) -> tuple[str, ...]:
        self.requests += 3  # 401, a token, the list
        if self.trouble:
            raise self.trouble
        return tuple(self.held)

    def digest(self, reference: str) -> str | None:
        self.requests += 1
        self.heads.append(reference.rpartition(":")[2])
        if isinstance(self.trouble, RegistryDenied):
            raise self.trouble
        return self.held.get(reference.rpartition(":")[2])


@dataclass
class Runs:
    """The plans that were run, and their results."""

    verdicts: dict[str, str] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    findings: Callable[[Plan], tuple[Finding, ...]] = lambda plan: ()
    verdict: str = "ok"
    raises: Exception | None = None
    ran: list[list[str]] = field(default_factory=list)
    fresh: list[bool] = field(default_factory=list)

    def __call__(self, plan: Plan, *, fresh: bool) -> RunResult:
        self.ran.append([cell.image.version for cell in plan.cells])
        self.fresh.append(fresh)
        if self.raises:
            raise self.raises
        cells = tuple(
            CellResult(
                cell=cell,
                verdict=self._verdict(cell.image.version),
                problem="no space" if cell.image.version in self.broken else "",
            )
            for cell in plan.cells
        )
        return RunResult(
            matrix=plan.matrix.name, verdict=self.verdict, started="", duration_s=0.0, hosts=(), plan=plan,  # type: ignore[arg-type]
            cells=cells, findings=self.findings(plan), directory=Path("r"),
        )  # fmt: skip

    def _verdict(self, version: str) -> CellVerdict:
        name = self.verdicts.get(version, "flat")
        return CellVerdict(verdicts=(name,), why="")  # type: ignore[arg-type]


@dataclass
class World:
    folder: Path
    registry: Registry
    runs: Runs = field(default_factory=Runs)
    seen: list[RegistryLook] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    at: datetime = datetime(2026, 1, 1, tzinfo=timezone.utc)
    changes: Mapping[int, Callable[[], object]] = field(default_factory=dict)
    drifting: bool = False
    asked: list[str] = field(default_factory=list)

    def drifts(self, matrix: str) -> bool:
        self.asked.append(matrix)
        return self.drifting

    def tell(self, seen: RegistryLook) -> None:
        self.seen.append(seen)
        self.changes.get(len(self.seen), lambda: None)()

    def watch(self, **options: Any) -> int:
        self.at += timedelta(hours=1)
        return WatchedMatrix(
            matrix=self.folder / "matrix.yaml",
            out=self.folder / "reports",
            environ={},
            images=self.registry,
            run=self.runs,
            tell=self.tell,
            drifts=self.drifts,
            stopped=self.stopped,
            now=lambda: self.at,
            **options,
        ).watch()

    @property
    def state(self) -> Path:
        return self.folder / "reports" / "nightly" / "watch.json"

    def last(self) -> tuple[list[str], list[str], list[str]]:
        seen = self.seen[-1]
        new, again, gone = ([spot.version for spot in spots] for spots in (seen.new, seen.republished, seen.gone))
        return new, again, gone


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    return World(folder=tmp_path, registry=Registry(held={"1.0": "sha256:a", "1.1": "sha256:b", "latest": "sha256:b"}))


def known(world: World) -> World:
    """Return the same watch after its first look."""
    assert world.watch() == 0
    world.seen.clear()
    world.runs.ran.clear()
    world.runs.fresh.clear()
    world.registry.heads.clear()
    return world


# ---------------------------------------------------------------- what is seen and run


def test_at_first_everything_is_new_and_what_a_sweep_knows_is_used_again(world: World) -> None:
    assert world.watch() == 0
    assert world.last() == (["1.0", "1.1"], [], [])
    assert (world.runs.ran, world.runs.fresh) == ([["1.0", "1.1"]], [False])


def test_nothing_new_runs_nothing(world: World) -> None:
    known(world)
    assert world.watch() == 0
    assert world.last() == ([], [], [])
    assert world.runs.ran == []


def test_a_new_tag_runs_beside_the_last_good_and_the_last_known_one(world: World) -> None:
    world.registry.held = {f"1.{number}": f"sha256:{number}" for number in range(6)}
    world.runs.verdicts = {"1.3": "leak", "1.4": "suspect", "1.5": "leak"}
    known(world)
    world.registry.held["1.6"] = "sha256:6"
    world.runs.verdict = "regression"
    assert world.watch() == 1
    assert world.last() == (["1.6"], [], [])
    assert (world.runs.ran, world.runs.fresh) == ([["1.0", "1.2", "1.5", "1.6"]], [True])
    assert world.watch() == 0, "known now"
    assert len(world.runs.ran) == 1


def test_a_drift_over_all_runs_ends_a_good_run_with_1(world: World) -> None:
    """A loss of 1 % with each version is not a finding of any single run."""
    world.drifting = True
    assert world.watch() == 1
    assert world.asked == ["nightly"]
    assert world.watch() == 0, "nothing was new"
    world.registry.held["1.2"] = "sha256:c"
    world.runs.verdict = "interrupted"
    assert world.watch() == 130
    assert world.asked == ["nightly"]


def test_a_slower_image_is_not_the_last_good_one(world: World) -> None:
    """Its own cells are flat: only the finding says that it is slower."""
    world.registry.held = {f"1.{number}": "sha256:0" for number in range(5)}

    def slower(plan: Plan) -> tuple[Finding, ...]:
        cell = plan.cells[0]
        place = {"series": "ngc", "lane": cell.lane, "variant": cell.variant, "metric": "step_time"}
        return (
            Finding(**place, kind="first_bad", before="1.0", after="1.1"),  # type: ignore[arg-type]
            Finding(**place, kind="first_fixed", before="1.1", after="1.2"),  # type: ignore[arg-type]
            Finding(**place, kind="first_bad", before="1.2", after="1.3"),  # type: ignore[arg-type]
        )

    world.runs.findings = slower
    known(world)
    world.runs.findings = lambda plan: ()
    world.registry.held["1.5"] = "sha256:5"
    world.watch()
    assert world.runs.ran == [["1.0", "1.2", "1.4", "1.5"]]


def test_a_republished_tag_is_run_again(world: World) -> None:
    known(world)
    world.registry.held["1.0"] = "sha256:other"
    assert world.watch() == 0
    assert world.last() == ([], ["1.0"], [])
    assert world.runs.ran == [["1.0", "1.1"]]
    world.watch()
    assert world.last() == ([], [], [])


def test_a_tag_that_is_gone_is_told_once_and_not_run_beside_others(world: World) -> None:
    known(world)
    del world.registry.held["1.1"]
    world.watch()
    assert world.last() == ([], [], ["1.1"])
    world.watch()
    assert world.last() == ([], [], [])
    world.registry.held["1.2"] = "sha256:c"
    world.watch()
    assert world.runs.ran == [["1.0", "1.2"]]


def test_one_that_comes_back_unchanged_is_not_new(world: World) -> None:
    known(world)
    digest = world.registry.held.pop("1.1")
    world.watch()
    world.registry.held["1.1"] = digest
    world.watch()
    assert world.last() == ([], [], [])
    assert world.runs.ran == []


def test_an_image_that_the_matrix_no_longer_names_is_not_gone(world: World) -> None:
    known(world)
    matrix = world.folder / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace('from: "1"', 'from: "1.1"'))
    world.watch()
    assert world.last() == ([], [], [])


def test_an_image_by_digest_is_not_gone_because_no_tag_is_called_so(world: World) -> None:
    pinned = f'  pinned: {{repository: registry.local/app, tags: ["sha256:{"0" * 64}"]}}\nhosts:'
    (world.folder / "matrix.yaml").write_text(MATRIX.replace("hosts:", pinned))
    known(world)
    world.watch()
    assert world.last() == ([], [], [])


def test_the_baseline_runs_as_well(world: World) -> None:
    matrix = world.folder / "matrix.yaml"
    matrix.write_text(f'{MATRIX}baseline: {{ngc: "1.0"}}\n')
    world.registry.held = {f"1.{number}": "sha256:0" for number in range(4)}
    known(world)
    world.registry.held["1.4"] = "sha256:4"
    world.watch()
    assert world.runs.ran == [["1.0", "1.3", "1.4"]]


def test_series_without_news_and_excluded_images_stay_out(world: World) -> None:
    text = MATRIX.replace("hosts:", '  mine: {images: ["other.local/x:1"]}\nhosts:')
    (world.folder / "matrix.yaml").write_text(f'{text}exclude: [{{image: "1.1", why: "known to hang"}}]\n')
    world.registry.held["1"] = "sha256:x"
    assert world.watch() == 0
    assert world.runs.ran == [["1", "1.0", "other.local/x:1"]]
    assert "1.1" not in [spot.version for spot in world.seen[0].new]
    world.registry.held["1.2"] = "sha256:c"
    world.watch()
    assert world.runs.ran[1] == ["1", "1.0", "1.2"]


def test_a_listed_tag_that_may_not_be_asked_for_is_noted(world: World) -> None:
    """It may exist on the engines; a registry that does not answer says nothing at all."""
    text = MATRIX.replace('tags: {match: "*", from: "1"}', 'tags: ["1.0", "9.9"]')
    (world.folder / "matrix.yaml").write_text(text)
    world.watch()
    assert world.last() == (["1.0"], [], [])
    assert world.seen[0].notes == ("ngc 9.9: the registry has no such tag",)
    world.registry.trouble = RegistryDenied("registry.local: no")
    assert world.watch() == 0
    assert sorted(world.seen[1].notes) == ["ngc 1.0: registry.local: no", "ngc 9.9: registry.local: no"]


# ---------------------------------------------------------------- what it costs


def many(world: World, count: int = 600) -> World:
    world.registry.held = {f"1.{number}": f"sha256:{number}" for number in range(count)}
    return known(world)


def test_nothing_new_among_600_tags_costs_five_requests(world: World) -> None:
    many(world)
    world.watch()
    assert world.seen[-1].requests == 5
    assert world.registry.heads == ["1.599", "1.598"]
    world.watch()
    assert world.registry.heads == ["1.599", "1.598", "1.597", "1.596"], "those asked longest ago come next"


def test_every_republished_tag_is_found_in_the_end_or_at_once(world: World) -> None:
    many(world, 120)
    world.registry.held["1.60"] = "sha256:other"
    world.watch()
    assert world.last() == ([], [], [])
    world.watch(digests="all")
    assert world.last() == ([], ["1.60"], [])
    world.registry.held["1.2"] = "sha256:other"
    for _ in range(60):
        world.watch()
        if world.seen[-1].republished:
            break
    assert world.last() == ([], ["1.2"], [])


def test_of_a_small_repository_all_are_asked(world: World) -> None:
    many(world, 100)
    world.watch()
    assert len(world.registry.heads) == 100


# ---------------------------------------------------------------- what goes wrong


def test_what_could_not_be_measured_stays_new(world: World) -> None:
    world.runs.broken = {"1.1"}
    world.runs.verdict = "infrastructure"
    assert world.watch() == 3
    world.runs.broken = set()
    world.runs.verdict = "ok"
    assert world.watch() == 0
    assert world.last() == (["1.1"], [], [])
    assert world.runs.ran[1] == ["1.0", "1.1"]


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_run_that_was_cut_short_is_begun_again(world: World, interrupted: bool) -> None:
    """By a signal, or by kill -9, after which nothing of ours runs any more."""
    known(world)
    world.registry.held |= {"1.0": "sha256:other", "1.2": "sha256:c"}
    if interrupted:
        world.runs.verdict = "interrupted"
        assert world.watch() == 130
    else:
        world.runs.raises = MemoryError()
        with pytest.raises(MemoryError):
            world.watch()
    world.runs.verdict, world.runs.raises = "ok", None
    assert world.watch() == 0
    assert world.last() == (["1.2"], ["1.0"], [])


def test_nothing_follows_from_half_an_answer(world: World) -> None:
    known(world)
    before = world.state.read_bytes()
    world.registry.trouble = RegistryTrouble("registry.local: breaks off")
    world.registry.held.clear()
    with pytest.raises(RegistryTrouble, match="breaks off") as caught:
        world.watch()
    assert caught.value.exit_code == 3
    assert (world.runs.ran, world.state.read_bytes()) == ([], before)
    told = world.seen[-1]
    assert (told.matrix, "breaks off" in told.problem) == (world.state.parent.name, True), "programs read what was told"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": 2, "series": {}}', b'{"schema": 1, "series": 1}'])
def test_a_file_that_is_not_ours_is_not_used(world: World, content: bytes) -> None:
    known(world)
    world.state.write_bytes(content)
    with pytest.raises(UsageError, match=r"watch\.json: is not a valid file of this version's watch; remove it"):
        world.watch()
    assert world.state.read_bytes() == content


HOLD = "import sys; from pathlib import Path; from harness.history.watch_state import only_one\n"
HOLD += "with only_one(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"


def test_a_full_disk_does_not_keep_a_watch_from_its_lock(tmp_path: Path) -> None:
    """The number in it is only for messages to others; this was a traceback."""
    line = f"ulimit -f 0; exec {shlex.join([sys.executable, '-c', HOLD, str(tmp_path)])}"
    done = subprocess.run(["sh", "-c", line], input="", capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("held\n", "")


@contextmanager
def another(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run another process that holds the lock of this folder."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_second_watch_is_refused_and_a_killed_one_leaves_no_lock(world: World) -> None:
    with another(world.state.parent) as process:
        with pytest.raises(InfrastructureError, match=rf"is running \(process {process.pid}\) and will find"):
            world.watch()
        assert world.runs.ran == []
        process.kill()
        process.wait()
        assert world.watch() == 0


# ---------------------------------------------------------------- again and again


def looks(world: World, *, changes: Mapping[int, Callable[[], object]], stop_after: int) -> int:
    """Watch with no pause between looks; after this many looks, make a change or stop."""
    world.changes = {**changes, stop_after: world.stopped.set}
    return world.watch(interval_s=0.0)


def test_watching_goes_on_until_it_is_stopped(world: World) -> None:
    def push() -> None:
        world.registry.held["1.2"] = "sha256:c"

    def fail() -> None:
        world.registry.trouble = RegistryTrouble("registry.local: is down")

    def mend() -> None:
        world.registry.trouble = None

    assert looks(world, changes={2: push, 3: fail, 4: mend}, stop_after=5) == 0
    assert [len(seen.new) for seen in world.seen] == [2, 0, 1, 0, 0]
    assert [bool(seen.problem) for seen in world.seen] == [False, False, False, True, False]
    assert world.runs.ran == [["1.0", "1.1"], ["1.0", "1.1", "1.2"]]


def test_being_stopped_while_a_registry_is_asked_is_no_error_of_a_later_look(world: World) -> None:
    def stop() -> None:
        world.registry.trouble = Interrupted("stopped")

    assert looks(world, changes={1: stop}, stop_after=9) == 0


def test_a_wrong_file_is_told_at_once(world: World) -> None:
    (world.folder / "matrix.yaml").write_text("version: 1\n")
    with pytest.raises(MatrixError):
        world.watch(interval_s=0.0)


# ---------------------------------------------------------------- what is said


def test_the_line() -> None:
    seen = RegistryLook(
        matrix="nightly", at="2026-11-21T05:10:36+00:00", images=33, requests=5, duration_s=0.84, tags=32, digests=2
    )
    assert words.line(seen) == (
        "2026-11-21T05:10:36+00:00 nightly: 33 images, nothing new; digests of 2 of 32 tags checked again; "
        "5 requests, 0.8 s"
    )
    news = replace(
        seen, new=tuple(ImageRef("ngc", f"1.{n}") for n in range(8)), gone=(ImageRef("ngc", "<script>\x1b[31m"),)
    )
    assert "8 new (ngc 1.0, ngc 1.1, ngc 1.2, ngc 1.3, ngc 1.4, ngc 1.5, 2 more), 1 gone (ngc <script>)" in words.line(
        news
    )
    assert words.line(RegistryLook(matrix="n", at="t", problem="x:\ny")) == "t n: x: y"
    assert json.loads(json.dumps(words.as_json(news)))["gone"] == [{"series": "ngc", "image": "<script>\x1b[31m"}]


def test_built_images_are_known_by_their_names(world: World) -> None:
    """There is no registry to ask: a version is new until it is measured."""
    (world.folder / "image").mkdir()
    (world.folder / "image" / "Dockerfile").write_text("FROM scratch\nARG V\n")
    text = MATRIX.replace("repository: registry.local/app", "build: image").replace(
        'tags: {match: "*", from: "1"}', 'arg: V\n    versions: ["1.0", "1.1"]'
    )
    (world.folder / "matrix.yaml").write_text(text)
    world.watch()
    world.watch()
    assert (world.last(), world.registry.requests) == (([], [], []), 0)
    assert world.runs.ran == [["1.0", "1.1"]]


def test_a_look_does_not_wait_for_what_only_a_run_needs() -> None:
    """Most looks find nothing new: importing statistics, HTML readers and engines took longer than asking."""
    heavy = {"scipy", "bs4", "docker", "jinja2", "uv"}
    code = f"import harness.history.command, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_field_of_the_object_is_in_the_docs() -> None:
    text = (Path(__file__).parents[3] / "docs" / "watch.md").read_text(encoding="utf-8")
    assert [name for name in words.as_json(RegistryLook(matrix="n", at="t")) if f"`{name}`" not in text] == []
