"""`harness doctor` with engines and a registry whose answers are planted: every host, every image on it."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from harness.errors import EngineUnreachable, Interrupted
from harness.flows import doctor
from harness.flows.context import RunContext
from harness.flows.sweep import SweepOptions, selected
from harness.model import Host, Image, Prepared, Pull, Trace, Trial, Where
from harness.model.answers import Checkup, HostCondition, Room
from harness.model.matrix import Gpu
from harness.model.watching import Say
from harness.registry.bounded_http import RegistryDenied, RegistrySilent, RegistryTrouble
from harness.registry.registry_client import PublishedImage
from harness.report.terminal.doctor_output import exit_code, render, to_json
from harness.report.terminal.progress import plain_progress
from harness.run.docker import docker_client
from harness.run.engine import Kept
from harness.run.images.disk_budget import RegistryAnswers, disk_of
from harness.store import RunDirectory
from tests.players.sweeps import QUIET
from tests.players.trials import made_trial

GIB = 1 << 30
WHERE = Where(file="matrix.yaml", line=1, key="x")
MATRIX = """\
version: 1
name: cards
series: {ngc: {repository: nvcr.io/nvidia/tensorflow, tags: ["20.12-tf1-py3", "22.12-tf1-py3", "gone"]}}
hosts:
  old: {engine: "ssh://old", gpus: all, disk: 20GiB}
  new: {engine: "ssh://new", gpus: all}
  lost: {engine: "ssh://lost", gpus: all}
scenarios: {quiet: {script: quiet.py, steps: {first: 100, budget: 200}}}
"""
RTX_3090 = Gpu(
    uuid="GPU-3090", name="NVIDIA GeForce RTX 3090", index=0, compute_capability="8.6", driver="535.104.05",
    cuda="12.2", power_limit_w=350, ecc=False, processes=2,
)  # fmt: skip
RTX_4090 = replace(RTX_3090, uuid="GPU-4090", name="NVIDIA GeForce RTX 4090", compute_capability="8.9", processes=0)
CONDITION = HostCondition(
    engine="docker 25.0", api="1.44", gpu_way="--gpus", holder="root@lab, process 7, since 2024-05-01 09:12 UTC",
    room=Room(free_bytes=100 * GIB, total_bytes=500 * GIB), leftovers=("harness-1",), kept_bytes=5 * GIB,
    memory_limit_bytes=57 * GIB,
)  # fmt: skip
SIZES = {"20.12-tf1-py3": {"a": 2 * GIB, "base": GIB}, "22.12-tf1-py3": {"b": 3 * GIB, "base": GIB}}


@pytest.fixture(autouse=True)
def without_control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "measure", lambda machines, context: {})


@dataclass
class Planted:
    """An engine that has the 22.12 image if it belongs to the new host."""

    host: Host
    facts: Mapping[str, Any]
    closed: bool = False

    def gpus(self, images: Sequence[Image], say: Say) -> tuple[Gpu, ...]:
        return (RTX_3090,) if self.host.name == "old" else (RTX_4090,)

    def condition(self, say: Say) -> HostCondition:
        return CONDITION

    def has(self, image: Image) -> bool:
        return self.host.name == "new" and image.version == "22.12-tf1-py3"

    def look(self, image: Image, say: Say) -> Prepared | None:
        return Prepared(image=image, reference="sha256:1", digest="sha256:1") if self.has(image) else None

    def size_bytes(self, prepared: Prepared) -> int:
        return 12 * GIB

    def missing(self, paths: Sequence[Path]) -> tuple[Path, ...]:
        return tuple(paths) if self.host.name == "old" else ()

    def kept(self) -> tuple[Kept, ...]:
        return (Kept(reference="sha256:9", name="x:9", made=False, layers={"k": 5 * GIB}),)

    def close(self) -> None:
        self.closed = True


class PlantedRegistry:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def facts(self, reference: str, *, architecture: str) -> PublishedImage:
        self.asked.append(reference)
        if "silent" in reference:
            raise RegistrySilent("silent.example: cannot be reached; try again later")
        if "old-manifest" in reference:
            raise RegistryTrouble("nvcr.io: does not send a manifest in a current format for x")
        tag = reference.rpartition(":")[2]
        if tag not in SIZES:
            raise RegistryDenied(f"nvcr.io: has no image {tag} of nvidia/tensorflow; check the name")
        return PublishedImage(labels={}, environment={}, layers=SIZES[tag])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "quiet.py").write_text(QUIET)
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    return tmp_path


def check(
    folder: Path,
    registry: PlantedRegistry | None = None,
    progress: io.StringIO | None = None,
    stopped: threading.Event | None = None,
) -> Checkup:
    engines: list[Planted] = []

    def open_engine(host: Host, **_: Any) -> Planted:
        if host.name == "lost":
            raise EngineUnreachable("matrix.yaml:7: hosts.lost: Cannot connect to the Docker daemon at ssh://lost")
        engines.append(Planted(host, {"engine": "docker 25.0", "architecture": "x86_64"}))
        return engines[-1]

    planted: Any = registry or PlantedRegistry()
    over = stopped or threading.Event()
    with plain_progress(progress or io.StringIO()) as watching:
        context = RunContext(environ={}, progress=watching, stopped=over, open_engine=open_engine)
        found = doctor.check(
            folder / "matrix.yaml", hosts=(), source=folder / "reports", context=context, registry=planted
        )
    assert all(engine.closed for engine in engines)
    return found


def test_every_host_and_every_image_on_it(folder: Path) -> None:
    found = check(folder)
    states = {(fit.host, fit.version): (fit.state, fit.why) for fit in found.fits}
    assert states["old", "20.12-tf1-py3"][0] == "runs"
    assert states["new", "20.12-tf1-py3"] == ("incompatible", "CUDA 11.1 has no code for sm_89")
    assert states["new", "22.12-tf1-py3"][0] == "runs"
    assert states["old", "gone"] == ("unknown", "nvcr.io: has no image gone of nvidia/tensorflow; check the name")
    assert states["lost", "22.12-tf1-py3"][0] == "unknown"
    sizes = {(fit.host, fit.version): (fit.at_hand, fit.bytes) for fit in found.fits}
    assert sizes["new", "22.12-tf1-py3"] == (True, 12 * GIB)
    assert sizes["old", "22.12-tf1-py3"] == (False, 4 * GIB)


def test_an_image_of_another_architecture_does_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(engine: Planted, image: Image, say: Say) -> Prepared:
        return Prepared(image=image, reference="", digest="", foreign="the image is for arm64 processors")

    monkeypatch.setattr(Planted, "look", look)
    states = {(fit.state, fit.why) for fit in check(folder).fits if fit.host == "old"}
    assert states == {("incompatible", "the image is for arm64 processors")}


def test_data_that_a_host_does_not_have_are_told_in_one_line(folder: Path) -> None:
    mounting = MATRIX.replace("script: quiet.py", "script: quiet.py, mounts: [{from: /data, at: /data}]")
    assert mounting != MATRIX
    (folder / "matrix.yaml").write_text(mounting)
    found = check(folder)
    assert [len(host.missing) for host in found.hosts] == [1, 0, 0]
    (text,) = shown(found, 120)
    assert "\nold: /data does not exist on this host; see `mounts:` of " in text
    assert to_json(found)["hosts"][0]["missing"] == list(found.hosts[0].missing)


def test_progress_names_what_is_looked_at(folder: Path) -> None:
    """It said "engine: looking for" one version, and then nothing about the others."""
    progress = io.StringIO()
    check(folder, progress=progress)
    lines = progress.getvalue().splitlines()
    assert "image new: ngc 20.12-tf1-py3: looking for it" in lines
    assert "image new: ngc 22.12-tf1-py3: looking for it" in lines
    assert [line for line in lines if line.startswith("image registries: images: asking the registry for")]


def test_an_interruption_says_that_nothing_was_changed(folder: Path) -> None:
    stopped = threading.Event()

    class Interrupting(PlantedRegistry):
        def facts(self, reference: str, *, architecture: str) -> PublishedImage:
            stopped.set()
            return super().facts(reference, architecture=architecture)

    with pytest.raises(Interrupted) as told:
        check(folder, Interrupting(), stopped=stopped)
    assert str(told.value) == "interrupted; nothing was changed"


def test_a_base_that_is_there_needs_no_registry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A base that was built on the host is in no registry: packages can still be installed over it."""
    series = '{own: {install: ["six=={version},!=0"], versions: ["1.16.0"], base: "own-base:1"}}'
    text = re.sub("^series: .*$", f"series: {series}", MATRIX, flags=re.MULTILINE)
    (folder / "matrix.yaml").write_text(text)
    monkeypatch.setattr(Planted, "has", lambda self, image: image.source == Pull(reference="own-base:1"))
    registry = PlantedRegistry()
    found = check(folder, registry)
    assert registry.asked == []
    assert not any("own-base" in fit.why for fit in found.fits if fit.host != "lost")
    assert [host.wanted.missing_bytes for host in found.hosts if host.wanted] == [0, 0]


def test_a_process_host_asks_no_registry_for_a_base(folder: Path) -> None:
    """No image is needed there: a registry without one, or out of reach, says nothing about what can run."""
    series = '{own: {install: ["six=={version},!=0"], versions: ["1.16.0"], base: "silent.example/own:1"}}'
    text = re.sub("^series: .*$", f"series: {series}", MATRIX, flags=re.MULTILINE)
    text = re.sub("^hosts:\n(  .*\n)+", "hosts: {here: {engine: process}}\n", text, flags=re.MULTILINE)
    (folder / "matrix.yaml").write_text(text)
    registry = PlantedRegistry()
    found = check(folder, registry)
    assert registry.asked == []
    assert [(fit.state, fit.host) for fit in found.fits] == [("runs", "here")]
    assert [host.wanted.unknown for host in found.hosts if host.wanted] == [{"own 1.16.0": "installed there"}]
    assert re.search(r"engine +process *$", shown(found, 100)[0], re.MULTILINE), "a name that is not told twice"


def test_shared_layers_count_once_and_too_little_room_is_told(folder: Path) -> None:
    old, new, _ = check(folder).hosts
    assert old.wanted is not None
    assert (old.wanted.missing, old.wanted.missing_bytes) == (3, 6 * GIB)
    assert new.wanted is not None
    assert (new.wanted.missing, new.wanted.missing_bytes) == (2, 3 * GIB)
    (text,) = shown(check(folder), 120)
    assert text.count("NOT ENOUGH SPACE") == 1, "18 GiB unpacked and 5 kept, where 20 are allowed"


def test_a_host_that_cannot_be_used_ends_with_3(folder: Path) -> None:
    found = check(folder)
    assert exit_code(found) == 3
    assert found.problems == ("matrix.yaml:7: hosts.lost: Cannot connect to the Docker daemon at ssh://lost",)
    assert exit_code(replace(found, hosts=found.hosts[:2])) == 0


def shown(checkup: Checkup, *widths: int) -> list[str]:
    texts = []
    for width in widths:
        stream = io.StringIO()
        render(checkup, Console(file=stream, width=width, highlight=False))
        texts.append(stream.getvalue())
    return texts


def test_the_tables_fit_and_say_all(folder: Path) -> None:
    wide, narrow = shown(check(folder), 120, 80)
    assert max(map(len, wide.splitlines())) <= 120
    assert max(map(len, narrow.splitlines())) <= 80
    for text in (wide, narrow):
        assert "RTX 4090 sm_89" in text
        assert "✗ incompatible [" in text
    for text in shown(check(folder), 200, 160):
        said = " ".join(text.split())
        assert "driver 535.104.05, CUDA 12.2" in said
        assert "350 W, ECC off, 2 other processes" in said
        assert "root@lab, process 7" in said
        assert "100 GiB free of 500 GiB" in said
        assert "CUDA 11.1 has no code for sm_89" in said
        assert "hosts.lost: Cannot connect to the Docker daemon at ssh://lost" in said


def test_a_small_size_has_a_unit_that_suits_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It read "0.0307 MiB used by harness"."""
    monkeypatch.setattr(Planted, "condition", lambda *_: replace(CONDITION, kept_bytes=31 << 10))
    assert "31 KiB used by harness" in " ".join(shown(check(folder), 200)[0].split())


def test_cards_of_one_kind_share_a_column(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight equal cards of a server have the same result: eight columns with the same name could
    not be distinguished.
    """
    cards = tuple(replace(RTX_4090, uuid=f"GPU-{number}", index=number) for number in range(8))
    capped = replace(RTX_4090, uuid="GPU-capped", index=8, power_limit_w=200)
    monkeypatch.setattr(Planted, "gpus", lambda *_: (*cards, capped))
    text = (folder / "matrix.yaml").read_text().replace("gpus: all", "gpus: each")
    (folder / "matrix.yaml").write_text(text)
    found = check(folder)
    (table,) = shown(found, 400)
    (header,) = [line for line in table.splitlines() if line.startswith("image ")]
    assert header.split("  ")[0] == "image"
    assert [name.strip() for name in header.split("  ") if name.strip()] == [
        "image", "old RTX 4090 ×8", "old RTX 4090", "new RTX 4090 ×8", "new RTX 4090", "lost",
    ]  # fmt: skip
    assert len({fit.gpu for fit in found.fits if fit.gpu is not None}) == 9


def test_json_has_every_field_and_null_for_what_is_not_known(folder: Path) -> None:
    found = to_json(check(folder))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["schema"], found["matrix"], found["exit_code"]) == (1, "cards", 3)
    old, new, lost = found["hosts"]
    assert set(old) == set(new) == set(lost)
    assert (lost["version"], lost["room"], lost["images"], lost["gpus"]) == (None, None, None, [])
    assert old["gpus"][0]["power_limit_w"] == 350
    assert (old["memory_limit_bytes"], lost["memory_limit_bytes"]) == (57 * GIB, None)
    assert old["room"] == {"free_bytes": 100 * GIB, "total_bytes": 500 * GIB}
    assert set(found["images"][0]) == {"host", "gpu", "series", "image", "state", "why", "at_hand", "bytes"}
    assert len(found["images"]) == 9


def test_a_registry_that_is_silent_is_waited_for_once() -> None:
    planted: Any = PlantedRegistry()
    told = RegistryAnswers(registry=planted)
    first, second = told.layers("silent.example/a:1", "amd64"), told.layers("silent.example/b:1", "amd64")
    assert first == second == "silent.example: cannot be reached; try again later"
    assert planted.asked == ["silent.example/a:1"]
    assert told.is_denied("silent.example/a:1", "amd64") is False
    assert told.layers("nvcr.io/x:22.12-tf1-py3", "amd64") == SIZES["22.12-tf1-py3"]


def test_an_image_with_a_wrong_answer_does_not_silence_its_registry() -> None:
    """One manifest from 2015 made every image of its registry unknown."""
    planted: Any = PlantedRegistry()
    told = RegistryAnswers(registry=planted)
    assert "does not send a manifest" in str(told.layers("nvcr.io/x:old-manifest", "amd64"))
    assert told.layers("nvcr.io/x:22.12-tf1-py3", "amd64") == SIZES["22.12-tf1-py3"]
    assert told.is_denied("nvcr.io/x:old-manifest", "amd64") is False


def test_images_that_cannot_all_fit_are_told_before_the_start(folder: Path) -> None:
    host = Host(name="old", engine="docker", gpus="none", where=WHERE, disk_bytes=20 * GIB)
    images = [Image(series="ngc", version=tag, source=Pull(reference=f"nvcr.io/t:{tag}"), where=WHERE) for tag in SIZES]
    notes: list[str] = []
    planted: Any = Planted(host, {})
    registry: Any = PlantedRegistry

    def disk(limit_bytes: int | None) -> Any:
        return disk_of(replace(host, disk_bytes=limit_bytes), planted, images, registry=registry, note=notes.append)

    assert disk(None).limit_bytes is None
    assert disk(40 * GIB).sizes == {("ngc", "20.12-tf1-py3"): 6 * GIB, ("ngc", "22.12-tf1-py3"): 9 * GIB}
    assert notes == []
    disk(20 * GIB)
    assert "will take about 23 GiB, and 20 GiB is allowed" in notes[0]


def test_the_noise_of_earlier_runs_is_shown(folder: Path) -> None:
    plan = selected(folder / "matrix.yaml", SweepOptions(hosts=("old",), seed=1), {})
    with plain_progress(io.StringIO()) as watching:
        now = RunContext(environ={}, progress=watching, stopped=threading.Event()).now()
    run = RunDirectory.create(out=folder / "reports", matrix="cards", now=now)
    lane = check(folder).hosts[0].lanes[0]
    cell = replace(plan.rows[0].cells[0], lane=lane)
    for number, factor in enumerate((1.0, 1.04), start=1):
        run.write_trial(launched(cell.id, number, factor=1.0), cell)
        replicate = replace(cell, replicate=True)
        run.write_trial(launched(replicate.id, number, factor=factor), replicate)
    found = check(folder)
    noise = found.hosts[0].noise["quiet"]
    assert noise["step_time"].freedom == 2
    assert noise["step_time"].deviation == pytest.approx(0.0392 / 2, rel=0.05)
    assert "quiet: step time ±2 %, peak memory ±0 % (2 pairs)" in shown(replace(found, hosts=found.hosts[:1]), 120)[0]


def launched(cell_id: str, number: int, *, factor: float) -> Trial:
    columns = {"rss_kib": np.full(200, 50_000.0), "step_s": np.full(200, 0.01 * factor)}
    return made_trial(
        cell_id=cell_id, number=number, run="r", round=number, last_step=200, steps_asked=200, peak_rss_kib=50_000.0,
        started=f"2024-01-0{number}", trace=Trace(step=np.arange(1.0, 201.0), columns=columns),
    )  # fmt: skip


# ---------------------------------------------------------------- which change will show


def test_a_user_knows_in_half_a_minute_which_change_will_show(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is too noisy for a limit was found out after an hour."""
    rng = np.random.default_rng(1)
    pairs = [(control(rng, number, 0), control(rng, number, 0)) for number in range(5)]
    pairs += [(control(rng, number, 100 * number + 1), control(rng, number, 100 * number + 1)) for number in range(5)]
    measured = doctor.Control(ms=2.0, pairs=pairs)

    def measure(machines: Sequence[doctor.Examined], context: Any) -> None:
        for each in machines:
            each.control = measured

    monkeypatch.setattr(doctor, "measure", measure)
    found = check(folder)
    (own,) = found.hosts[1].predicted
    assert (own.what, own.pairs, list(own.in_slices)) == ("the control", 5, [4, 8])
    assert own.in_slices[8] < own.in_slices[4] < 0.1 < own.alone[4]
    text = " ".join(shown(replace(found, hosts=found.hosts[1:2]), 200)[0].split())
    assert "new: in slices a change in step time of about" in text
    assert "by 5 pairs of equal launches of the control" in text
    assert "noise the control: step time ±" in text, "it said `not measured yet` of what it had just measured"
    assert to_json(found)["hosts"][1]["predicted"][0]["pairs"] == 5


def control(rng: np.random.Generator, number: int, cycle: int) -> Trial:
    """Return a launch of the control on a host whose pace changes by 20 % from one launch to the next; in slices from
    this cycle on, unless it is 0."""
    rows = doctor.STEPS.budget
    pace = np.repeat(np.exp(np.random.default_rng(cycle).normal(0, 0.2, rows // 10)), 10) if cycle else np.ones(rows)
    noise = rng.normal(0, 0.003 if cycle else 0.1)
    columns = {"rss_kib": np.full(rows, 5e4), "step_s": 0.002 * pace * np.exp(noise) * rng.lognormal(0, 0.02, rows)}
    if cycle:
        columns["slice"] = np.repeat(np.arange(rows // 10) + float(cycle), 10)
    trace = Trace(step=np.arange(1.0, rows + 1), columns=columns)
    return made_trial(
        cell_id="control", number=1, end="completed", round=number, last_step=rows, steps_asked=rows, trace=trace
    )


def test_without_a_matrix_file_this_machine_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who wanted to know whether the machine is fit for a sweep had to write a matrix file first."""
    monkeypatch.setattr(docker_client, "SOCKET", tmp_path / "docker.sock")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    registry: Any = PlantedRegistry()
    said = io.StringIO()
    with plain_progress(said) as watching:
        environ = {"HARNESS_CACHE": str(tmp_path / "cache")}
        context = RunContext(environ=environ, progress=watching, stopped=threading.Event())
        found = doctor.check(None, hosts=(), source=tmp_path, context=context, registry=registry)
    (host,) = found.hosts
    assert "no Docker found, so only the engine `process` is checked" in said.getvalue()
    assert (host.host.engine, host.problem, found.fits) == ("process", None, ())
    assert host.condition is not None
    assert host.condition.room is not None
    assert (registry.asked, exit_code(found)) == ([], 0)


@pytest.mark.parametrize("named", ["DOCKER_HOST", "DOCKER_CONTEXT", "the active context", "the socket", ""])
def test_docker_is_checked_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """The engine of `docker context use` was not checked, although a sweep uses it."""
    monkeypatch.setattr(docker_client, "SOCKET", tmp_path / "docker.sock")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    if named == "the active context":
        (tmp_path / "config.json").write_text('{"currentContext": "lab"}')
    if named == "the socket":
        (tmp_path / "docker.sock").touch()
    assert docker_client.is_configured(environ={named: "lab"} if named.isupper() else {}) is bool(named)
