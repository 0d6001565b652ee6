"""The parts of the Slurm engine that need no cluster."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pytest

from harness.errors import EngineUnreachable, ImageUnavailable, InfrastructureError, named_place
from harness.model import Cache, Image, Look, Mount, Pull, Scenario, Trace, Trial, Where
from harness.model.matrix import Gpu
from harness.registry.bounded_http import RegistrySilent, RegistryTrouble
from harness.registry.registry_client import Registry
from harness.run.engine import Payload, Session
from harness.run.interruptible import NetworkTrouble, piped
from harness.run.process.engine import ProcessSession, check_home
from harness.run.slurm import container_commands, queue, steps, trials
from harness.run.slurm.container_commands import COMMANDS, INSIDE, Start, options_of, visible_gpus
from harness.run.slurm.engine import allocated_gpus
from harness.run.slurm.images import IMPORT, ImageFiles
from harness.run.slurm.inside import is_outside
from harness.run.slurm.queue import Allocation, salloc_options
from harness.run.slurm.request import NodeHold, NodeRequest
from harness.run.trial.nodes import Nodes, beside
from harness.run.trial.payload import agent_files
from tests.players.trials import facts_of
from tests.waiting import until

CARDS = tuple(Gpu(uuid=f"GPU-{number}", name="NVIDIA GeForce RTX 3090", index=number) for number in range(4))


@pytest.mark.parametrize(
    ("found", "visible", "chosen"),
    [
        (CARDS, "2,3", CARDS[2:]),  # the cluster shows all cards, and names ours by the driver's numbers
        (CARDS[2:], "0,1", CARDS[2:]),  # the cluster hides the cards of other jobs, and numbers start again at 0
        (CARDS, "GPU-1", CARDS[1:2]),
        (CARDS, "", ()),
        (CARDS, "NoDevFiles", ()),
        ((), "", ()),
    ],
)
def test_another_job_s_card_is_never_taken(found: tuple[Gpu, ...], visible: str, chosen: tuple[Gpu, ...]) -> None:
    assert allocated_gpus(found, visible, place="here") == chosen


def test_a_card_that_the_driver_does_not_list_is_told() -> None:
    with pytest.raises(InfrastructureError, match=r"here: Slurm gave the GPUs 7, but the driver lists .*RTX 3090"):
        allocated_gpus(CARDS, "7", place="here")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "salloc: error: invalid partition specified: x\nsalloc: error: Job submit/allocate failed: Invalid",
            "no such p",
        ),
        ('squeue: error: Munge encode failed: Failed to access "/run/munge"', "munge does not run on this machine"),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "slurmctld does not answer"),
        ("sinfo: fatal: Unable to process configuration file", "this machine has no slurm.conf"),
        (
            "slurmstepd-n1: error: pyxis: container start failed with error code: 1\n"
            "slurmstepd-n1: error: pyxis: printing enroot log file:\n"
            "slurmstepd-n1: error: pyxis:     enroot-mount: failed to mount: /srv/a at /etc: Not a directory\n"
            "slurmstepd-n1: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1\n"
            "srun: error: n1: task 0: Exited with exit code 1",
            "enroot-mount: failed to mount: /srv/a at /etc: Not a directory",
        ),
        ("", "it failed without a message"),
    ],
)
def test_what_slurm_says_becomes_one_line_with_a_remedy(said: str, told: str) -> None:
    line = queue.slurm_complaint(said)
    assert told in line
    assert "\n" not in line
    assert not re.search(r"(salloc|srun|slurmstepd\S*): error", line)


def test_the_traceback_of_an_agent_that_did_not_start_keeps_its_form() -> None:
    traceback = ["Traceback (most recent call last):", '  File "<string>", line 1', "    import agent", "OSError: gone"]
    said = "\n".join([*traceback, "", "srun: error: n1: task 0: Exited with exit code 1"])
    assert queue.telling_lines(said) == traceback


@pytest.mark.parametrize("told", ["slurm 20.02.7", "slurm-wlm 18.08.5"])
def test_a_slurm_that_is_too_old_is_told_before_anything_is_asked(told: str, tmp_path: Path) -> None:
    (tmp_path / "sinfo").write_text(f"#!/bin/sh\necho {told}\n")
    (tmp_path / "sinfo").chmod(0o755)
    with pytest.raises(InfrastructureError, match=rf"^here: {told} is too old: .* 20\.11 or later$"):
        queue.slurm_version(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"}, place="here")


def test_a_shell_inside_another_job_does_not_change_what_is_asked() -> None:
    """SLURM_MEM_PER_NODE of the job in which the harness runs would be an option of the harness's own srun."""
    around = {"PATH": "/bin", "SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "10", "SALLOC_ACCOUNT": "a", "TOKEN": "secret"}
    kept = queue.slurm_environment({**around, "SLURM_CONF": "/etc/slurm.conf"})
    assert kept == {"PATH": "/bin", "SALLOC_ACCOUNT": "a", "SLURM_CONF": "/etc/slurm.conf"}


def test_what_is_selected_goes_to_salloc_and_always_a_time_limit() -> None:
    request = NodeRequest(container="none", select=(("gres", "gpu:1"), ("mem", "8G")), hold=NodeHold(time_s=90.0))
    asked = salloc_options(request, node="n1")
    assert {"--gres=gpu:1", "--mem=8G", "--time=1:30", "--nodelist=n1", "--exclusive"} <= set(asked)
    assert "--mem=0" not in asked
    shared = salloc_options(NodeRequest(container="none", hold=NodeHold(exclusive=False)), node=None)
    assert not {"--exclusive", "--mem=0"} & set(shared)


def test_what_is_removed_from_a_node_may_be_read_only(tmp_path: Path) -> None:
    """`rm -rf` of an ordinary user removes nothing from Go's module cache. A link's target keeps its rights."""
    folder, target = Path(tempfile.mkdtemp()), tmp_path / "own"
    (inner := folder / "a" / "b").mkdir(parents=True)
    (inner / "file").touch()
    target.mkdir(mode=0o500)
    (folder / "link").symlink_to(target)
    (link := tmp_path / "link").symlink_to(target)
    for path in (inner, inner.parent, folder):
        path.chmod(0o500)
        os.chown(path, *([65534] * 2 if os.getuid() == 0 else [-1, -1]))
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.getuid() == 0 else ()
    subprocess.run([*user, *trials.REMOVAL, folder, link], check=os.getuid() != 0, capture_output=True)
    assert not folder.exists()
    assert target.stat().st_mode & 0o777 == 0o500


@pytest.mark.parametrize("home", ["", "a\0b", "/root"])
def test_a_cache_in_a_home_that_is_not_the_launch_s_own_is_refused(tmp_path: Path, home: str) -> None:
    """A sweep from cron, which sets no HOME, ended with KeyError."""
    scenario = Scenario(name="a", where=Where(file="m", line=1, key=""), mounts=(Cache(name="hub", at="~/hub"),))
    with pytest.raises(InfrastructureError, match="a cache in ~ needs the launch's own HOME"):
        check_home(SimpleNamespace(scenario=scenario), home, tmp_path)  # type: ignore[arg-type]


# ---------------------------------------------------------------- inside


def inside(given: bytes, *, then: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", "-c", steps.INSIDE_TEXT]
    return subprocess.run(command, input=given + then, capture_output=True, check=False, timeout=30)


def ordered(start: str, root: Path | None, **fields: object) -> bytes:
    names = [f"harness_agent/{name}.py" for name in ("__init__", "caches", "killing", "stopping")]
    agent = {name: agent_files()[name] for name in names}
    files = {**agent, "start.py": start.encode(), "deep/er.txt": b"\0\n"}
    payload = Payload(job={"a": 1}, files=files, executable=frozenset())
    return b"".join(steps.order(payload, root=root and str(root), environment={"TOLD": "ü"}, only=True, **fields))


def test_the_agent_gets_its_files_its_environment_and_the_rest_of_the_input(tmp_path: Path) -> None:
    """The conversation begins in the same pipe, right after the files."""
    root = tmp_path / "trial"
    start = (
        "import json, os, sys\nprint(json.dumps([sorted(os.listdir('.')), dict(os.environ), sys.argv[1:],"
        " open('deep/er.txt').read(), sys.stdin.read()]))"
    )
    done = inside(ordered(start, root, arguments=["gpus"]), then=b"an answer\n")
    names, environment, arguments, text, rest = json.loads(done.stdout)
    assert names == ["deep", "harness_agent", "job.json", "start.py"]
    assert {"HOME": str(root), "TMPDIR": str(root), "TOLD": "ü"}.items() <= environment.items()
    assert "PATH" not in environment
    assert (arguments, text, rest) == (["gpus"], "\0\n", "an answer\n")
    assert not root.exists(), "the node keeps it"


def test_a_node_keeps_no_folders_however_long_their_paths_are(tmp_path: Path) -> None:
    """The removal raised an error in place of the launch's own end."""
    root = tmp_path / "trial"
    start = "import os, sys\nfor _ in range(1200):\n os.mkdir('cache')\n os.chdir('cache')\nsys.exit(3)"
    done = inside(ordered(start, root))
    assert (done.returncode, done.stderr) == (3, b"")
    assert not root.exists()


@contextlib.contextmanager
def session(*command: str) -> Iterator[ProcessSession]:
    process = piped(command, environment=dict(os.environ))
    try:
        yield ProcessSession(process, None)
    finally:
        process.kill()
        process.communicate()


def test_a_step_that_does_not_read_cannot_hold_up_the_harness() -> None:
    """The files of a trial were written to srun without a limit: the harness waited for ever, deaf to Ctrl-C."""
    with session("sleep", "60") as idle:
        began_s = time.monotonic()
        idle.send_pieces([bytes(1 << 20)] * 8)
        assert idle.receive(0.1) == b""
        assert time.monotonic() - began_s < 5


def test_a_step_that_reads_late_gets_all_of_its_files() -> None:
    pieces = (bytes([number]) * (1 << 20) for number in range(8))
    with session("sh", "-c", f"sleep 0.3; head -c {8 << 20} | sha256sum; cat") as late:
        late.send_pieces(pieces)
        late.send(b"the answer")
        told = b""
        while not told.endswith(b"the answer") and (data := late.receive(20.0)) is not None:
            told += data
    whole = hashlib.sha256(b"".join(bytes([number]) * (1 << 20) for number in range(8))).hexdigest()
    assert told == f"{whole}  -\nthe answer".encode()


def test_its_end_is_told_and_its_folder_goes_with_it(tmp_path: Path) -> None:
    root = tmp_path / "trial"
    assert inside(ordered("raise SystemExit(7)", root)).returncode == 7
    assert inside(ordered("import os; os.kill(os.getpid(), 11)", root)).returncode == 128 + 11
    assert not root.exists()


def test_input_that_breaks_off_starts_nothing(tmp_path: Path) -> None:
    root = tmp_path / "trial"
    done = inside(ordered("print('started')", root)[:-5])
    assert (done.returncode, done.stdout, root.exists()) == (1, b"", False)
    assert b"the input ended before the trial's files did" in done.stderr


# ---------------------------------------------------------------- containers


def start(**fields: object) -> Start:
    scenario = Scenario(name="a", where=Where(file="m", line=1, key="k"), **fields.pop("scenario", {}))  # type: ignore[arg-type]
    return Start(name="harness-trial-x", image="image", text="TEXT", scenario=scenario, **fields)  # type: ignore[arg-type]


DATA = {"mounts": (Mount(source=Path("/srv/a, b"), at="/data"), Mount(source=Path("/srv/c"), at="d"))}


def test_each_container_program_mounts_data_read_only() -> None:
    for program in ("docker", "apptainer"):
        command = COMMANDS[program](start(scenario=DATA))
        given = [command[at + 1] for at, word in enumerate(command) if word == "--mount"]
        assert given == [
            'type=bind,"source=/srv/a, b",destination=/data,ro',
            "type=bind,source=/srv/c,destination=/.harness-data/d,ro",
        ]
    blank = {"mounts": (Mount(source=Path("/srv/a, b"), at="d"),)}
    assert r"/srv/a,\040b:/.harness-data/d:none:x-create=auto,rbind,ro" in COMMANDS["enroot"](start(scenario=blank))
    plain = {"mounts": DATA["mounts"][1:]}
    mounts = "--container-mounts=tmpfs:/tmp,tmpfs:/.harness-data,/srv/c:/.harness-data/d:ro"
    assert mounts in COMMANDS["pyxis"](start(scenario=plain))


@pytest.mark.parametrize(
    ("program", "names"),
    [("enroot", ["a:b", "a\\040b", "a\tb", "a\nb"]), ("pyxis", [f"a{each}b" for each in ':, "$`\\\n'])],
)
def test_a_path_that_would_be_another_one_is_refused(program: str, names: list[str]) -> None:
    """pyxis mounted /srv/a instead of /srv/a$b, because a shell reads its mounts."""
    for name in names:
        for mount in (Mount(source=Path("/srv", name), at="d"), Mount(source=Path("/srv"), at=name)):
            with pytest.raises(InfrastructureError, match=f"{program} cannot mount a path with"):
                COMMANDS[program](start(scenario={"mounts": (mount,)}))


def test_a_container_on_a_node_is_as_confined_as_on_an_engine() -> None:
    command = COMMANDS["docker"](start(memory_bytes=1000))
    told = " ".join(command)
    for option in (
        "--network none --hostname localhost",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--memory 1000",
        "--init --no-healthcheck",
    ):
        assert option in told
    assert not {"--volume", "-v", "--privileged", "--mount"} & set(command)
    assert "NVIDIA_VISIBLE_DEVICES=void" in told
    asked = " ".join(COMMANDS["docker"](start(memory_bytes=1000, scenario={"network": True, "memory_bytes": 500})))
    assert "--network bridge" in asked
    assert "--memory 500 --memory-swap 500" in asked


def test_the_lane_s_gpus_are_named_by_their_uuid() -> None:
    """An index may mean another card on another day."""
    docker = COMMANDS["docker"](start(gpus=("GPU-1", "GPU-2")))
    assert docker[docker.index("--gpus") + 1] == '"device=GPU-1,GPU-2"'


def test_an_entrypoint_is_kept_or_skipped_as_the_matrix_says() -> None:
    kept, skipped = (COMMANDS["docker"](start(keep_entrypoint=keep)) for keep in (True, False))
    assert kept[-5:] == ["image", "sh", "-c", INSIDE, "TEXT"]
    assert skipped[-6:] == ["--entrypoint", "sh", "image", "-c", INSIDE, "TEXT"]


def test_enroot_takes_nothing_from_the_cluster_s_settings_or_the_user_s_home() -> None:
    command = COMMANDS["enroot"](start(keep_entrypoint=False))
    folder = "/tmp/harness-trial-x"
    assert {"ENROOT_MOUNT_HOME=no", "ENROOT_RESTRICT_DEV=yes", f"ENROOT_CONFIG_PATH={folder}/config"} <= set(command)
    assert command[command.index("unshare") :][:4] == ["unshare", "--user", "--map-current-user", "--net"]
    assert command[-7:] == ["--rc", f"{folder}/rc", "image", "sh", "-c", INSIDE, "TEXT"]
    assert not {"--mount", "-m", "--root"} & set(command)
    asked = COMMANDS["enroot"](start(scenario={"network": True}))
    assert not {"unshare", "--rc"} & set(asked)


def test_enroot_gets_the_lane_s_gpus_and_the_parts_of_the_driver_that_cuda_needs() -> None:
    """For an image that names no capabilities, its hook mounts only `utility`."""
    assert "NVIDIA_VISIBLE_DEVICES=void" in COMMANDS["enroot"](start())
    named, unnamed = (
        COMMANDS["enroot"](start(gpus=("GPU-1", "GPU-2"), names_capabilities=told)) for told in (True, False)
    )
    assert "NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2" in named
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" not in named
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in unnamed


def test_pyxis_gets_no_home_no_rights_and_nothing_of_the_last_trial() -> None:
    """`no_exec`: a trial that joined a running container would see the files of its processes."""
    line = COMMANDS["pyxis"](start(gpus=("GPU-1",), unpacked="ours", names_capabilities=False))
    assert {"--container-readonly", "--no-container-mount-home", "--no-container-remap-root"} < set(line)
    assert "--container-name=ours:no_exec" in line
    assert "--container-entrypoint" in line
    assert "--container-env=NVIDIA_VISIBLE_DEVICES,NVIDIA_DRIVER_CAPABILITIES" in line
    assert "--no-container-entrypoint" in COMMANDS["pyxis"](start(keep_entrypoint=False))


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "PMIX_RANK", "CUDA_VISIBLE_DEVICES", "RANK", "MASTER_ADDR", "TMPDIR"])
def test_nothing_of_slurm_reaches_a_trial_by_pyxis_but_what_is_the_image_s(name: str) -> None:
    without = {"names": container_commands.OUTSIDE, "values": {"HOME": "/root"}, "kept": []}
    assert is_outside(name, "0", without)
    assert not is_outside(name, "0", {**without, "kept": [name]})
    assert not is_outside("RANKING", "0", without)
    assert (is_outside("HOME", "/root", without), is_outside("HOME", "/", without)) == (True, False)


def test_apptainer_is_as_confined_as_it_can_be() -> None:
    command = COMMANDS["apptainer"](start())
    confined = {"--containall", "--no-home", "--writable-tmpfs", "--cleanenv", "--no-eval", "--net", "--no-privs"}
    assert confined <= set(command)
    assert command[:2] == ["apptainer", "run"]
    assert "--nv" not in command
    other = COMMANDS["apptainer"](start(keep_entrypoint=False, gpus=("GPU-1",), scenario={"network": True}))
    assert ("--nv" in other, "--net" in other, other[1]) == (True, False, "exec")
    assert visible_gpus("apptainer", ("GPU-1",))["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert visible_gpus("enroot", ("GPU-1",)) == visible_gpus("apptainer", ()) == {}


def test_another_way_to_start_a_container_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials that were started differently are not reused from earlier runs."""
    before = options_of("apptainer")
    monkeypatch.setitem(container_commands.COMMANDS, "apptainer", lambda start: ["apptainer", "exec"])  # type: ignore[arg-type]
    assert options_of("apptainer") != before


def test_a_node_that_does_not_see_the_images_says_so(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    command = ["sh", "-c", IMPORT, "sh", str(gone), str(gone / "file"), "name", "touch", str(gone / "file")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, gone.exists()) == (1, False)
    assert done.stderr == (
        f"this node does not see {gone}: choose a folder for images: that this machine and the nodes share\n"
    )


@pytest.mark.parametrize(("ends", "code"), [("exit 0", 0), ("kill $$", 143)])
def test_no_file_of_an_import_stays_beside_its_image(ends: str, code: int, tmp_path: Path) -> None:
    """Apptainer left a folder of some GB in /tmp of the node when it was killed."""
    file = tmp_path / "image"
    own = ("sh", "-c", f'touch "$TMPDIR/left" && echo "$TMPDIR" >"$0"; {ends}', str(file))
    command = ["sh", "-c", IMPORT, "sh", str(tmp_path), str(file), "harness-trial-x", *own]
    done = subprocess.run(command, check=False, timeout=30, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert (done.returncode, list(tmp_path.iterdir())) == (code, [] if code else [file])
    assert code or file.read_text() == f"{tmp_path}/harness-trial-x\n"


class Unkillable(subprocess.Popen[bytes]):
    """A program that no signal ends, like one that waits for a file server that is gone."""

    def send_signal(self, sig: int) -> None:
        """Send nothing."""


def test_a_sweep_does_not_wait_for_ever_for_a_step_that_cannot_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "ENDS_S", 0.1)
    monkeypatch.setattr(steps, "KILLED_S", 0.1)
    command, pipe = [sys.executable, "-c", "import time; time.sleep(60)"], subprocess.PIPE
    with Unkillable(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        allocation = Allocation(
            job="1", node="n1", cpus=1, until_s=0.0, place="here", environ={}, holder=process
        )  # fmt: skip
        steps.StepSession(process, allocation).end()
        assert process.poll() is None, "end() came back although the step runs on"
        os.kill(process.pid, signal.SIGKILL)


def _raised(error: Exception) -> str:
    with pytest.raises(type(error)) as seen, named_place("m.yaml:4: hosts.a", ".gpus"):
        raise error
    return str(seen.value)


def test_an_error_of_a_host_names_its_place_in_the_matrix_once() -> None:
    """Errors of the GPU probe and of the lock of an image file did not say on which host they happened."""
    assert _raised(InfrastructureError("no srun")) == "m.yaml:4: hosts.a.gpus: no srun"
    assert _raised(EngineUnreachable("gone", place="m.yaml:4: hosts.a")) == "m.yaml:4: hosts.a: gone"


@pytest.mark.parametrize(
    ("error", "is_network"),
    [
        (RegistrySilent("r.example: cannot be reached (3 attempts)", hint="try again later"), True),
        (RegistryTrouble("r.example: answers with HTTP 503 for x", hint="is it a registry?"), False),
    ],
)
def test_a_registry_that_does_not_answer_is_a_network_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: RegistryTrouble, is_network: bool
) -> None:
    """Words of the message decided: "cannot be reached" was no network error, and any "HTTP 503" was one."""

    def digest(_self: Registry, _reference: str) -> None:
        raise error

    monkeypatch.setattr(Registry, "digest", digest)
    hold = SimpleNamespace(request=NodeRequest(container="enroot", images=tmp_path), place="m.yaml:4: hosts.a")
    where = Where(file="m.yaml", line=7, key="series.s")
    image = Image(series="s", version="1", source=Pull(reference="r.example/x:1"), where=where)
    with pytest.raises(ImageUnavailable, match=r"r\.example") as caught:
        ImageFiles(hold, environ={}).prepare(image, lambda _: None)  # type: ignore[arg-type]
    assert isinstance(caught.value, NetworkTrouble) is is_network


def test_an_image_that_was_removed_is_told_with_its_host(tmp_path: Path) -> None:
    hold = SimpleNamespace(request=NodeRequest(container="enroot", images=tmp_path), place="m.yaml:4: hosts.a")
    store = ImageFiles(hold, environ={})  # type: ignore[arg-type]
    gone = SimpleNamespace(reference=str(tmp_path / "gone.sqsh"))
    told = r"^m\.yaml:4: hosts\.a: .*another run removed this image"
    with pytest.raises(InfrastructureError, match=told), store.in_use(gone):  # type: ignore[arg-type]
        raise AssertionError("it is not there")


# ---------------------------------------------------------------- one trial on several nodes


STEPS = np.arange(1.0, 101.0)


def trial(rss_kib: float, *, grows: float = 0.0, looks: tuple[int, ...] = (50, 100), rank: int = 0, **of: Any) -> Trial:
    column = rss_kib + grows * STEPS
    told = {"rss_kib": column, "step_s": np.full(100, 0.01 * (1 + rank))}
    seen = tuple(Look(step=step, values={"rss_kib": column[step - 1], "cpu_s": step / 100}) for step in looks)
    fields: dict[str, Any] = {"end": "completed", "facts": facts_of({"ranks": [{"rank": rank, "steps": 1}]}), **of}
    return Trial(cell_id="c", number=1, key="k", trace=Trace(step=STEPS, columns=told, looks=seen), **fields)


def joined(*trials: Trial, failed: tuple[float, ...] = (), ended: tuple[float, ...] = (10.0, 10.0)) -> Trial:
    nodes = Nodes(names=("n1", "n2"), cancelled=lambda: False)
    nodes.trials = dict(enumerate(trials))
    nodes.failed, nodes.ended = dict(enumerate(failed or ended)), dict(enumerate(ended))
    return nodes.joined()


def test_memory_is_that_of_the_node_where_it_grows_and_never_of_two() -> None:
    """A node that was ended before its last look has another level: its last look would be that of the first node."""
    one = joined(trial(1000.0), trial(5000.0, grows=2.0, looks=(50,), rank=1))
    assert one.trace is not None
    assert one.trace.columns["rss_kib"].tolist() == (5000.0 + 2.0 * STEPS).tolist()
    assert [look.values for look in one.trace.looks] == [{"rss_kib": 5100.0, "cpu_s": 1.0}, {}]
    assert one.trace.columns["step_s"].tolist() == [0.02] * 100, "the slowest rank's"
    assert [rank.rank for rank in one.facts.ranks] == [0, 1]
    assert [rank.rank for rank in joined(trial(1.0), trial(1.0)).facts.ranks] == [0, 1], "numbered node by node"


def test_the_node_that_failed_first_is_named_and_those_of_which_nobody_knows() -> None:
    lost = trial(1.0, end="crash", message="Traceback\nrank 0: step 9: ConnectionError: reset")
    cause = trial(1.0, end="crash", message="rank 3: step 9: ValueError")
    near = joined(lost, cause, failed=(8.0, 8.01))
    assert near.message == "node n2: rank 3: step 9: ValueError; node n1: rank 0: step 9: ConnectionError: reset"
    late = joined(cause, lost, failed=(3.0, 8.0))
    assert (late.end, late.message) == ("crash", "node n1: rank 3: step 9: ValueError")
    assert joined(trial(1.0), lost, failed=(9.0, 9.5)).end == "completed", "a consequence of the good end"
    assert joined(trial(1.0), cause, failed=(9.0, 5.0)).end == "crash"


def test_a_node_that_was_not_looked_at_is_no_fault_and_not_good() -> None:
    silent = trial(1.0, end="interrupted", message="interrupted")
    crashed = trial(1.0, end="crash", message="rank 0: step 9: ConnectionError: reset")
    assert (joined(crashed, silent).end, joined(crashed, silent).message) == (
        "infrastructure",
        "node n2 no longer answers",
    )
    few = trial(1.0)
    assert few.trace is not None
    short = Trace(step=STEPS[:20], columns={name: own[:20] for name, own in few.trace.columns.items()})
    one = joined(trial(1.0), Trial(cell_id="c", number=1, key="k", end="completed", trace=short))
    assert (one.end, one.message) == (
        "infrastructure",
        "node n2: only 20 of the launch's 100 samples came from there",
    )


def test_an_error_in_the_conversation_with_another_node_ends_the_launch() -> None:
    """It printed a traceback, and the launch counted as good, although nobody had looked at that node."""
    nodes, session = Nodes(names=("n1", "n2"), cancelled=lambda: False), create_autospec(Session)

    def hold(session: Session, cut: Callable[[], bool]) -> tuple[Trial, float]:
        raise InfrastructureError("node n2: srun: error")

    with pytest.raises(InfrastructureError, match="node n2: srun"), beside(nodes, {"n2": session}, hold):
        assert until(lambda: nodes.cut(0, session), seconds=10), "the first node went on"
