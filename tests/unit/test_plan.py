"""The cells of a matrix, their order, and what is said about them in advance."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.flows import deciding
from harness.flows import estimate as estimating
from harness.flows.context import RunContext
from harness.flows.estimate import NEWEST_RUNS, estimate
from harness.flows.sweep import SweepOptions, checked_data, explained, selected
from harness.model import (
    Build,
    Image,
    Install,
    Matrix,
    Mount,
    Plan,
    PredictedEffect,
    Scalar,
    Series,
    Stop,
    Trials,
    Variant,
)
from harness.model.matrix import Gpu
from harness.model.scenario import Cache
from harness.plan.cells import choose_lanes, matches, select, variants, with_lanes
from harness.plan.explain import explain
from harness.plan.uses import uses
from harness.report.terminal.plan_output import dry_run
from harness.store import RunDirectory
from harness.store.plan_file import plan_to_json, read_plan_file
from tests.players.engines import Silent, swept
from tests.players.plans import MATRIX, WHERE, host, scenario, series


def texts(matrix: Matrix, **options: Any) -> list[str]:
    return [str(cell) for cell in select(matrix, seed=1, **options).cells if not cell.excluded]


def test_rows_are_in_the_order_of_the_file() -> None:
    plan = select(MATRIX, seed=7)
    found = [f"{row.variant} | {row.series.name} | {row.lane}" for row in plan.rows]
    variants_ = [f"signal op={op} n={n}" for op in ("rfft", "fft") for n in (1, 2)]
    expected = [f"{v} | {s} | {lane}" for v in variants_ for s in ("tags", "numpy") for lane in ("here", "venv")]
    assert found == [*expected, "tool | numpy | venv"]
    assert (plan.seed, plan.trials) == (7, Trials())
    assert all([cell.image for cell in row.cells] == list(row.series.images) for row in plan.rows)


def test_what_is_left_out_stays_in_with_the_reason() -> None:
    plan = select(MATRIX, seed=1)
    whys = Counter(cell.excluded for cell in plan.cells if cell.excluded)
    assert whys == {
        "known": 4,
        "needs a container engine, such as `engine: docker` of a host": 8,
    }  # 2 n × 2 lanes; 2 tags × 4 variants
    assert all(cell.lane.host.can.shares_programs for cell in plan.cells if cell.excluded and "needs" in cell.excluded)


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        ({"scenario": "signal"}, 32),
        ({"host": "venv"}, 18),
        ({"n": 1}, 16),
        ({"n": True}, 0),
        ({"n": 1.0}, 0),
        ({"op": "fft", "n": 1, "image": "1"}, 2),
        ({"scenario": "tool", "op": "fft"}, 0),
    ],
)
def test_a_rule_excludes_every_cell_that_it_matches(rule: dict[str, Scalar], count: int) -> None:
    plan = select(replace(MATRIX, exclude=({**rule, "why": "rule"},)), seed=1)
    found = [cell for cell in plan.cells if cell.excluded and cell.excluded == "rule"]
    assert len(found) == count


def test_lanes() -> None:
    gpus = {"none": "none", "all": "all", "each": "each", "two": ("0", "RTX 3090")}
    matrix = replace(MATRIX, hosts=tuple(host(name, gpus=value) for name, value in gpus.items()))

    def lanes(known: dict[str, Any]) -> list[str]:
        plan = with_lanes(select(matrix, seed=1, only=["signal"]), known)
        return list(dict.fromkeys(str(row.lane) for row in plan.rows))

    assert lanes({}) == ["none", "all/all", "each/each", "two/0", "two/RTX 3090"]
    found = [Gpu(uuid="GPU-1", name="NVIDIA GeForce RTX 3090", index=0), Gpu(uuid="GPU-2", name="RTX 4090", index=1)]
    asked = {"each": choose_lanes(matrix.hosts[2], found)}
    assert lanes(asked)[2:4] == ["each/RTX 3090", "each/RTX 4090"]


def test_include_adds_variants() -> None:
    added = ({"scenario": "signal", "op": "dct"}, {"scenario": "tool", "level": 3})
    found = [str(v) for s in MATRIX.scenarios for v in variants(s, added)]
    assert found[-3:] == ["signal op=fft n=2", "signal op=dct", "tool level=3"]


# ---------------------------------------------------------------- choosing


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("signal", 4), ("sig*", 4), ("signal op=rfft", 2), ("op=rfft", 2), ("signal op=rfft n=1", 1), ("n=2", 2),
        ("signal op=?fft", 2), ("signal op=[rx]fft", 2), ("*", 5), ("tool", 1),
    ],
)  # fmt: skip
def test_only(pattern: str, count: int) -> None:
    plan = select(MATRIX, seed=1, only=[pattern])
    assert len({row.variant for row in plan.rows}) == count


def test_a_pattern_may_fit_the_whole_text_of_a_variant() -> None:
    variant = Variant(scenario=scenario("x"), params=(("text", "a b"), ("none", None)))
    assert matches(variant, "x text=a b none=null")
    assert not matches(variant, "x text=b")
    assert not matches(variant, "")


def test_hosts_series_and_trials_can_be_chosen() -> None:
    assert texts(MATRIX, hosts=["venv"], series=["numpy"], only=["tool"]) == [
        "numpy 2.0.0 on venv: tool",
        "numpy 2.0.1 on venv: tool",
    ]
    assert select(MATRIX, seed=1, trials=Trials(least=1, most=2)).trials.most == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hosts": ["her"]}, r"--host 'her': the matrix has no such host; it has: here, venv"),
        ({"series": ["x"]}, r"--series 'x': the matrix has no such series; it has: tags, numpy"),
        ({"only": ["sig"]}, r"--only 'sig' matches no scenario or variant; scenarios: signal, tool; a variant: 'sig"),
        ({"only": ["tool"], "hosts": ["here"]}, r"no cell is left"),
    ],
)
def test_what_fits_nothing_is_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        select(MATRIX, seed=1, **options)


# ---------------------------------------------------------------- what is said about it


def test_explain_counts_launches_and_the_worst_time() -> None:
    explained = explain(select(MATRIX, seed=1))
    here, venv = explained.hosts
    assert (here.cells, here.launches_least, here.launches_most) == (14, 42, 112)
    assert (venv.cells, venv.launches_least) == (8, 24)
    assert (explained.cells, explained.excluded, explained.launches_least) == (22, 12, 66)
    assert (here.worst_s, explained.worst_s) == (42 * 1200.0, 42 * 1200.0)
    text = "here (docker): 14 cells, 42 to 112 launches\n    42 launches; if every one reached its `timeout`, they"
    assert text in dry_run(explained)
    assert "pull a/tags:1" in dry_run(explained)
    assert "install numpy==2.0.0 over python:3.11\n" in dry_run(explained)
    assert "install numpy==2.0.0 in a virtual environment of the running Python\n" in dry_run(explained)
    assert "left out: 2 × numpy on here: known" in dry_run(explained)


def test_the_launches_that_fill_warm_caches_are_foretold() -> None:
    """Of a sweep that downloads a model once for each version, the dry run did not tell these launches."""
    warm, cold = (Cache(name="hub", at="/hub", start=start) for start in ("warm", "cold"))
    for cache, is_told in ((warm, True), (cold, False)):
        caching = tuple(replace(each, mounts=(cache,)) for each in MATRIX.scenarios)
        told = dry_run(explain(select(replace(MATRIX, scenarios=caching), seed=1, hosts=["venv"])))
        assert ("8 more launches to fill warm caches: one for each version and variant that is" in told) is is_told


def test_a_search_fills_the_caches_of_the_versions_that_it_launches_alone() -> None:
    """16 launches were foretold of a search that makes some six."""
    warm = tuple(replace(each, mounts=(Cache(name="hub", at="/hub"),)) for each in MATRIX.scenarios)
    asked = replace(MATRIX, scenarios=warm, series=(series("tags", *map(str, range(16))),))
    whole, halved = (
        explain(select(asked, seed=1, hosts=["here"], search=search)).hosts[0].fills for search in ("full", "bisect")
    )
    rows = whole // 16
    assert (whole, halved) == (16 * rows, 6 * rows)


def test_a_search_promises_no_image_that_it_may_not_need() -> None:
    """Eight images of 10 GiB each are a reason not to start; a search needs only a few of them."""
    long = replace(MATRIX, series=(series("tags", *"12345678"), *MATRIX.series[1:]))
    explained = explain(select(long, seed=1, hosts=["here"], search="bisect"))
    (here,) = explained.hosts
    assert (explained.cells, explained.searched) == (38, 32)
    assert here.images == tuple(f"numpy {one}: install numpy=={one} over python:3.11" for one in ("2.0.0", "2.0.1"))
    assert here.images_if_asked == tuple(f"tags {one}: pull a/tags:{one}" for one in "12345678")
    text = dry_run(explained)
    assert text.startswith("m: 6 cells to run, 32 to search, 2 left out; launches: at least ")
    assert f"about {explained.launches_expected} expected, at most {explained.launches_most}; seed 1\n" in text
    assert "of these 8 images, only those that a search needs:\n      tags 1: pull a/tags:1\n" in text
    run = explain(select(long, seed=1, hosts=["here"]))
    assert {*here.images, *here.images_if_asked} == set(run.hosts[0].images)
    assert "search" not in dry_run(run)
    assert dry_run(replace(explained, cells=1, searched=0)).startswith("m: 1 cell to run, ")


def test_lanes_of_a_parallel_host_share_the_time() -> None:
    def worst_s(*, parallel: bool) -> float:
        hosts = (host("two", gpus=("0", "1"), parallel=parallel),)
        return explain(select(replace(MATRIX, hosts=hosts), seed=1, only=["signal"])).worst_s

    assert worst_s(parallel=False) == 2 * worst_s(parallel=True)


def test_plan_as_json() -> None:
    plan = select(MATRIX, seed=3)
    data = json.loads(json.dumps(plan_to_json(plan), allow_nan=False))
    assert (data["schema"], data["matrix"], data["seed"], data["trials"]) == (4, "m", 3, {"least": 3, "most": 8})
    assert [entry["name"] for entry in data["series"]] == ["tags", "numpy"]
    assert [entry["engine"] for entry in data["hosts"]] == ["docker", "process"]
    cells = [cell for row in data["rows"] for cell in map(tuple, row["cells"])]
    assert cells == [(cell.image.version, cell.excluded) for cell in plan.cells]
    assert len({cell.id for cell in plan.cells}) == len(cells)
    assert data["rows"][0]["params"] == {"op": "rfft", "n": 1}
    assert Counter(why for _, why in cells)["known"] == 4


def test_a_run_s_directory_holds_no_credential() -> None:
    """It is copied to other machines, and attached to reports."""
    secret = "s3cretvalue"
    address = f"https://ada:{secret}@index.example/simple"
    given = (("HF_TOKEN", secret), ("INDEX", address), ("TF_XLA_FLAGS", "--x=1"))
    sources = (
        Build(context=Path("images/x"), args=(("NGC_APIKEY", secret), ("VERSION", "1"))),
        Install(base="b", python=None, packages=(f"x @ git+{address}", "y==1")),
    )
    images = tuple(
        Image(series="s", version=str(number), source=source, where=WHERE, environment=given)
        for number, source in enumerate(sources)
    )
    one = replace(scenario("one"), environment=given)
    matrix = replace(
        MATRIX, series=(Series(name="s", images=images, where=WHERE),), scenarios=(one,), exclude=(), include=()
    )
    plan = select(matrix, seed=1)
    written = json.dumps(plan_to_json(plan))
    assert secret not in written
    assert secret not in dry_run(explain(plan))
    assert {"HF_TOKEN", "NGC_APIKEY", "--x=1"} <= set(written.replace('"', " ").replace(",", " ").split())


# ---------------------------------------------------------------- the time that a dry run predicts


@pytest.fixture
def swept_plan(tmp_path: Path) -> Plan:
    swept(tmp_path, Stop(quick=True))
    return selected(tmp_path / "matrix.yaml", SweepOptions(seed=1), {})


def trials(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.glob("reports/matrix/[0-9]*/trials/*") if "-replicate-" not in path.name]


def test_a_sweep_will_probably_take_as_many_launches_as_the_last_one(tmp_path: Path, swept_plan: Plan) -> None:
    """The line "at most 96 launches, 32 hours" kept users from a sweep that took 12 launches and a minute."""
    found = estimate(tmp_path / "reports" / "matrix", swept_plan)
    assert found is not None
    assert dict(found.launches) == {"far": len(trials(tmp_path))}
    assert 0 <= found.seconds < 60
    assert found.predicted.keys() == {"far"}, "what a sweep would show is predicted for each host"
    plan = selected(tmp_path / "matrix.yaml", SweepOptions(seed=1), {})
    told = dry_run(explained(plan, SweepOptions(out=tmp_path / "reports")))
    assert f"about {len(trials(tmp_path))} launches, about" in told


def test_a_dry_run_counts_what_is_missing_and_the_known_versions_beside_a_new_one(tmp_path: Path) -> None:
    """It said "about 48 launches" of a sweep that made none, and of one that made a few for a new version."""
    swept(tmp_path, Stop())
    matrix, made = tmp_path / "matrix.yaml", len(trials(tmp_path))

    def told(**changed: Any) -> str:
        options = SweepOptions(out=tmp_path / "reports", **changed)
        return dry_run(explained(selected(matrix, options, {}), options))

    assert f"no launches; {made} are reused" in told()
    assert f"about {made} launches" in told(fresh=True)
    matrix.write_text(matrix.read_text().replace('v4: "i:4"', 'v4: "i:4", v5: "i:5"'))
    assert told().count("new: s v5 beside v1, v4 (far, quiet") == 3
    assert f"; {made} are reused" in told()
    matrix.with_name("quiet.py").write_text("def setup(part=0):\n    return lambda: 1\n")
    assert "reused" not in told(), "the script is another one"


def with_partial_runs(folder: Path, plan: Plan) -> Path:
    """Add runs that have only the trials of v1 and v2, as many as are read for durations; return the folder of all."""
    (whole,) = folder.glob("reports/matrix/[0-9]*")
    ids = {cell.id for cell in plan.cells if cell.image.version in ("v1", "v2")}
    for day in range(NEWEST_RUNS):
        part = whole.with_name(f"20990101T00000{day}Z-0000")
        shutil.copytree(whole, part)
        for file in part.glob("trials/*"):
            if file.name.rpartition("-")[0] not in ids:
                file.unlink()
    return whole.parent


def test_versions_that_an_older_run_measured_are_not_new_after_partial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After five runs of `watch`, a dry run called the other versions new, which the sweep takes over; --decide
    launched them all."""
    swept(tmp_path, Stop())
    matrix = tmp_path / "matrix.yaml"
    plan = selected(matrix, SweepOptions(seed=1), {})
    folder = with_partial_runs(tmp_path, plan)
    read: list[Path] = []
    monkeypatch.setattr(estimating, "read_plan_file", lambda run: read.append(run) or read_plan_file(run))
    found = estimate(folder, plan)
    assert found is not None
    assert not found.beside
    assert len(read) == 1, "one plan tells that the script is the same"
    matrix.write_text(matrix.read_text().replace('v4: "i:4"', 'v4: "i:4", v5: "i:5"'))
    plan = selected(matrix, SweepOptions(seed=1), {})
    found = estimate(folder, plan)
    assert found is not None
    assert {text.partition(" (")[0] for text in found.beside} == {"s v5 beside v1, v4"}
    kept = deciding._on_changed_hosts(plan, RunDirectory(folder / "now"))
    assert {cell.image.version for cell in kept.cells} == {"v1", "v4", "v5"}


def test_all_versions_are_left_to_decide_if_none_has_all_its_launches(tmp_path: Path, swept_plan: Plan) -> None:
    """After an interrupted sweep, or with more `trials` in the matrix, a changed driver ended --decide with an error of
    the harness."""
    plan = replace(swept_plan, trials=Trials(least=9, most=9))
    kept = deciding._on_changed_hosts(plan, RunDirectory(tmp_path / "reports/matrix/now"))
    assert [cell.id for cell in kept.cells] == [cell.id for cell in plan.cells]


def test_a_changed_driver_is_not_compared_with_the_first_launches_of_try(tmp_path: Path, swept_plan: Plan) -> None:
    """`harness compare` always refuses them, so that a sweep after `try` and an update of the driver told nothing."""
    (run,) = tmp_path.glob("reports/matrix/[0-9]*")
    part = shutil.copytree(run, run.with_name("20990101T000000Z-0000"))
    (part / "plan.json").write_text(json.dumps({**json.loads((run / "plan.json").read_text()), "rehearsal": True}))
    assert deciding._earlier_runs(RunDirectory(run.with_name("now"))) == [run]


def test_a_row_that_is_new_counts_as_the_others_of_its_scenario(tmp_path: Path, swept_plan: Plan) -> None:
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(matrix.read_text().replace("[0, 1, 2]", "[0, 1, 2, 3]"))
    found = estimate(tmp_path / "reports" / "matrix", selected(matrix, SweepOptions(seed=1), {}))
    assert found is not None
    assert found.launches["far"] == 16


def test_nothing_is_said_where_no_run_tells(tmp_path: Path, swept_plan: Plan) -> None:
    assert estimate(tmp_path / "elsewhere", swept_plan) is None
    plan = selected(tmp_path / "matrix.yaml", SweepOptions(seed=1), {})
    told = dry_run(explained(plan, SweepOptions(out=tmp_path / "elsewhere")))
    assert "about" not in told
    assert "`harness doctor` finds out in half a minute, on a host that has one of these images" in told


def test_a_dry_run_says_which_change_will_show_by_the_last_run(tmp_path: Path, swept_plan: Plan) -> None:
    found = estimate(tmp_path / "reports" / "matrix", swept_plan)
    assert found is not None
    predicted = PredictedEffect(what="quiet", pairs=5, in_slices={4: 0.031, 8: 0.014}, alone={4: 0.4})
    plan = replace(explain(swept_plan), estimate=replace(found, predicted={"far": (predicted,)}))
    assert (
        "  far: in slices a change in step time of about 3.1 % after 4 rounds and of about 1.4 % after 8 rounds will"
        " show; if every launch ran alone, one of about 40 % after 4 rounds (by 5 pairs of equal launches of quiet)"
    ) in dry_run(plan).splitlines()


def test_a_trial_file_that_was_edited_costs_no_dry_run(tmp_path: Path, swept_plan: Plan) -> None:
    for path in trials(tmp_path):
        path.write_text("{}")
    found = estimate(tmp_path / "reports" / "matrix", swept_plan)
    assert found is not None
    assert found.seconds == 0


@dataclass(frozen=True)
class HostWith:
    """An engine of a host that has these paths."""

    paths: tuple[str, ...]

    def missing(self, paths: Sequence[Path]) -> tuple[Path, ...]:
        return tuple(path for path in paths if str(path) not in self.paths)

    def close(self) -> None: ...


def test_a_dry_run_says_where_mounted_data_are_missing() -> None:
    """The first sweep on a new host ended after its pulls, since nobody had copied the data there."""
    there = {"ssh://a": ("/data",), "ssh://b": (), "ssh://c": ("/data",)}
    mounting = replace(scenario("train"), mounts=(Mount(source=Path("/data"), at="/data"),))
    hosts = tuple(host(address[-1], address) for address in there)
    matrix = replace(MATRIX, hosts=hosts, scenarios=(mounting, scenario("other")), include=(), exclude=())
    context = RunContext(
        environ={},
        progress=Silent(),
        stopped=threading.Event(),
        open_engine=lambda host, **_: HostWith(there[host.engine]),
    )
    told = checked_data(select(matrix, seed=1), context)
    assert told == (
        "a: all mounted data are there",
        "b: /data does not exist on this host; see `mounts:` of train",
        "c: all mounted data are there",
    )
    plan = replace(explain(select(matrix, seed=1)), data=told)
    assert f"\n  {told[1]}\n" in dry_run(plan)
    assert checked_data(select(replace(matrix, scenarios=(scenario("other"),)), seed=1), context) == ()


# ---------------------------------------------------------------- what launches use


def test_what_each_launch_uses_is_told_before_it_starts() -> None:
    """Only `harness try` said it: that a sweep has no network, or copies no file, showed in a failed launch."""
    assert list(uses(select(MATRIX, seed=1), {"venv": "x86_64"})) == [
        "each launch of signal on here: a container of docker from each image, no GPU, no network, no file copied in",
        "each launch of signal, tool on venv: a process of this machine (x86_64), no GPU, the machine's network, "
        "no file copied in",
    ]
    here = Path.cwd()
    mounts = (Mount(source=Path("/data/x"), at="/data"), Cache(name="hub", at="~/hub"))
    files = (here / "parts", Path("/opt/more.txt"))
    served = replace(scenario("served"), program=here / "serve.py", files=files, mounts=mounts, network=True)
    matrix = replace(MATRIX, hosts=(host("far", "ssh://lab", gpus=("0",)),), scenarios=(served,))
    (line,) = uses(select(matrix, seed=1), {})
    assert line == (
        "each launch: a container of ssh://lab from each image, GPU 0, a network, copied in: its program, parts, "
        "/opt/more.txt, mounted: /data/x at /data, the warm cache hub at ~/hub"
    )
