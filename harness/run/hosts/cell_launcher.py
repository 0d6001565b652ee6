"""Launches one cell once: gets its image, runs the trial, has it judged, and records it."""

from __future__ import annotations

import functools
import re
import secrets
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness import compat
from harness.errors import EngineUnreachable, HarnessError, InfrastructureError, Interrupted
from harness.judge.api import Length, decide_at_look, describe_trial, length_of, wants_alone
from harness.model import Cell, CellRun, Mount, Prepared, ProgressListener, Proposal, Trial, Trials
from harness.model.measured import gist
from harness.model.watching import EndedTrial
from harness.run.engine import NO_PYTHON, Engine, LaunchRequest, Lease
from harness.run.hosts import side_by_side
from harness.run.hosts.host_gpus import mismatch
from harness.run.hosts.mounted_data import Found, HostData, key_of_inputs
from harness.run.hosts.warm_caches import HostCaches
from harness.run.images.prefetch import HostImages
from harness.run.interruptible import say_unless
from harness.run.trial.conversation import Conversation, Sliced, alone
from harness.run.trial.payload import in_place, pack, trial_key
from harness.store import RunDirectory


@dataclass(frozen=True, kw_only=True)
class CellLauncher:
    """Launches cells on one connection to an engine."""

    engine: Engine
    lease: Lease
    images: HostImages
    run_id: str
    trials: Trials
    journal: RunDirectory
    progress: ProgressListener
    stopped: Callable[[], bool]
    reuse: bool = True
    peers: Mapping[str, list[Trial]] = field(default_factory=lambda: defaultdict(list))
    """The trials of this run by scenario, without traces: their memory predicts that of later launches."""
    cold: set[str] = field(default_factory=set)
    """The digests of new images that have not been launched since a row took them up."""
    sizes: dict[str, int | None] = field(default_factory=dict)
    data: HostData = field(default_factory=HostData)
    caches: HostCaches = field(default_factory=HostCaches)

    def close(self) -> None:
        """Abandon the background pulls, and remove all caches."""
        self.images.close()
        self.caches.close(self.engine)

    # ------------------------------------------------------------ images

    def prepare(self, run: CellRun) -> None:
        """Get the cell's image (once per image), and take over the cell's trials of earlier runs."""
        cell = run.cell
        if cell.excluded:
            run.problem = cell.excluded
        if run.prepared is not None or cell.excluded or run.incompatible:
            return
        image = self.images.get(cell)
        if isinstance(image, str):
            run.problem = image
            return
        if image.digest in self.images.new and not run.at_hand:
            self.cold.add(image.digest)
        if image.lacks_python and cell.variant.scenario.needs_python:
            run.problem = NO_PYTHON
            return
        run.incompatible = cannot_run(cell, image) or ""
        if run.incompatible:
            return
        run.prepared = image
        run.image_bytes = self._size_bytes(image)
        try:
            data = self._data(cell, image)
            inputs = key_of_inputs(cell.variant.scenario, data, self.data.environ)
        except EngineUnreachable:
            raise
        except InfrastructureError as error:
            run.prepared, run.problem = None, error.text_at(cell.lane.host.where)
            self.progress.note(str(error))
            return
        run.key = trial_key(cell, prepared=image, facts=self.engine.facts, inputs=inputs)
        if self.reuse:
            known = self.journal.known_trials(run.cell, run.key, asked=self.trials)
            for number, trial in enumerate(known, start=1):
                adopted = self.journal.adopt(trial, run.cell, number=number)
                run.trials.append(adopted)
                self._report_end(run, describe_trial(run.cell, adopted), reused=True)
            run.adopted = len(run.trials)
            if why := self.journal.why_again(run.cell):
                self.progress.note(f"{why}: launches from before are measured again")
        if data and not run.trials:
            self._tell_change(run, inputs["mounts"])

    def _tell_change(self, run: CellRun, identities: Mapping[str, str]) -> None:
        """Note whether earlier runs measured other data, with which the new launches are not compared."""
        for at, before in self.journal.earlier_data(run.cell).items():
            now = identities.get(at, before)
            if now != before:
                what = f"{run.cell.variant.scenario.name} on {run.cell.lane.host.name}: the data at {at} are not those"
                run.other_data = f"{what} of earlier runs, which are not compared: {before} before, {now} now"

    def _data(self, cell: Cell, image: Prepared) -> Mapping[Mount, Found]:
        """Return what the cell's mounts are on this host. Raises InfrastructureError, Interrupted."""
        lane, name = self.images.place(cell), f"{cell.variant.scenario.name}'s data"
        say = say_unless(self.stopped, lambda text: self.progress.preparing(lane=lane, image=name, text=text))
        return self.data.of(cell, image, self.engine, say) if cell.variant.scenario.data else {}

    def _size_bytes(self, image: Prepared) -> int | None:
        """Return the bytes that an image takes on the host, asking the engine once; None if it does not report it."""
        if image.digest not in self.sizes:
            try:
                self.sizes[image.digest] = self.engine.size_bytes(image)
            except EngineUnreachable:
                raise
            except InfrastructureError:
                self.sizes[image.digest] = None
        return self.sizes[image.digest]

    # ------------------------------------------------------------ trials

    def launch(
        self,
        run: CellRun,
        *,
        row: Sequence[CellRun],
        proposal: Proposal,
        others: Callable[[], int],
        slices: int = 0,
    ) -> Sliced[None]:
        """Run one trial of a cell. `row`: all versions, oldest first. `others` returns the largest number of other
        launches on the host during the trial; `slices`: how many launches are alive together, of which only one makes
        steps at a time, if this is one of them.

        A trial that ends as infrastructure is proposed again, up to side_by_side.TRIES times. If the image
        cannot be prepared, or if trials of earlier runs are taken over, nothing is launched: the row first
        proposes again.
        """
        if run.prepared is None:
            self.prepare(run)
            if run.prepared is None or run.trials:
                return
        number = len(run.trials) + 1
        lane, cell = self.images.place(run.cell), run.cell
        self._check_stopped()
        self.lease()
        begun_s = time.monotonic()
        scenario = cell.variant.scenario
        steps = None if scenario.is_sampled else scenario.steps.budget
        self.progress.trial_started(lane=lane, cell=str(cell), number=number, steps=steps, most_s=scenario.timeout_s)
        length = length_of(run, row, proposal)
        start = functools.partial(self._launch, run, run.prepared, proposal, length, slices=slices)
        with self.journal.watched(cell):
            trial, description = yield from self._reviewed(run, start, number=number)
        trial = replace(
            trial,
            conditions=replace(
                trial.conditions,
                beside=others(),
                parked=max(0, slices - 1),
                pulled=self.images.pulled_since(begun_s),
                cold=run.prepared.digest in self.cold,
            ),
            image=replace(trial.image, bytes=run.image_bytes),
        )
        if trial.measured:
            self.cold.discard(run.prepared.digest)
        doubtful = bool(trial.conditions.others) and trial.measured and wants_alone(cell, trial)
        for changed in side_by_side.add_trial(run, trial, doubtful=doubtful):
            self.journal.write_trial(changed, cell)
        trial = run.trials[-1]
        if trial.conditions.others:  # other launches may have changed how the trial counts
            description = describe_trial(cell, trial)
        self.peers[cell.variant.scenario.name].append(replace(trial, trace=None))
        self._report_end(run, description, reused=False)
        run.failures = run.failures + 1 if trial.end == "infrastructure" else 0
        if run.failures >= side_by_side.TRIES:
            run.problem = gist(trial.message)
        for other in row:
            for changed in side_by_side.killed_alone(other, row):
                self.journal.write_trial(changed, other.cell)
        if trial.conditions.disturbed:
            self._rest(why=trial.conditions.disturbed, lane=lane)

    def _reviewed(
        self, run: CellRun, start: Callable[..., Sliced[Trial]], *, number: int
    ) -> Sliced[tuple[Trial, tuple[str, bool | None]]]:
        """Launch once; return the reviewed trial and the judge's description of it. A trial on the wrong GPU counts as
        infrastructure.

        No trial ends the sweep: if the output of an image triggers a bug in the harness, only this trial counts as
        infrastructure.
        """
        failed = Trial(cell_id=run.cell.id, number=number, key=run.key, end="infrastructure")
        try:
            try:
                trial = yield from start(number=number)
            except EngineUnreachable:
                raise
            except InfrastructureError as error:
                trial = replace(failed, message=error.text_at(run.cell.lane.host.where))
            if trial.end == "interrupted":
                raise Interrupted("interrupted")
            if trial.measured and trial.facts and (wrong_gpus := mismatch(run.cell.lane.gpus, trial.facts)):
                trial = replace(trial, end="infrastructure", message=wrong_gpus)
            else:
                trial, run.incompatible = review(run.cell, trial)
            return trial, describe_trial(run.cell, trial)
        except HarnessError:
            raise
        except Exception as error:  # noqa: BLE001 - any error concerns only this trial
            message = f"a bug in the harness ended this launch: {_place_of(error)}; please report it"
            return replace(failed, message=message), (f"infrastructure: {message}", False)

    def _rest(self, *, why: str, lane: str) -> None:
        """Pause so that the lane's GPU can cool; Ctrl-C ends the pause."""
        end_s = time.monotonic() + PAUSE_S
        while time.monotonic() < end_s:
            self._check_stopped()
            self.progress.preparing(lane=lane, image="GPU", text=f"pausing for {PAUSE_S:.0f} s: {why}")
            time.sleep(min(0.5, PAUSE_S))

    def _launch(
        self, run: CellRun, prepared: Prepared, proposal: Proposal, length: Length, *, number: int, slices: int
    ) -> Sliced[Trial]:
        cell, lane = run.cell, self.images.place(run.cell)
        decide = functools.partial(decide_at_look, cell, whole=length.whole, usual_s=length.usual_s, own_s=length.own_s)
        mounts = [
            {"at": mount.at, "from": str(mount.source), "files": found.files, "identity": found.identity}
            for mount, found in self._data(cell, prepared).items()
        ]
        with self.images.in_use(cell, prepared) as present:
            launch = LaunchRequest(
                prepared=present,
                scenario=cell.launched.scenario,
                payload=pack(
                    cell.launched,
                    extras={**length.job, "slices": slices, "mounts": mounts, "in_place": in_place(cell)},
                ),
                gpus=cell.lane.gpus,
                run=self.run_id,
                cell_id=cell.id,
                number=number,
            )
            conversation = Conversation(
                launch=launch,
                key=run.key,
                round=proposal.round,
                decide=decide,
                on_step=lambda step, rss_kib: self.progress.step(lane=lane, step=step, rss_kib=rss_kib),
                on_note=lambda text: self.progress.note(f"{cell}: {text}"),
                cancelled=self.stopped,
            )
            filled, failed = self.caches.of(run, self.engine, functools.partial(self._fill, conversation, lane))
            if failed is not None:
                return failed
            conversation = replace(conversation, launch=replace(launch, caches=filled))
            return (yield from conversation.run(self.engine))

    def _fill(self, conversation: Conversation, lane: str, caches: Mapping[str, str]) -> Trial:
        """Launch a version alone to fill its caches. All of its steps are made."""
        name = conversation.launch.scenario.name
        self.progress.preparing(lane=lane, image=f"{name}'s cache", text="a launch that does not count fills it")
        payload = conversation.launch.payload
        launch = replace(
            conversation.launch,
            caches=caches,
            fills=True,
            payload=replace(payload, job={**payload.job, "slices": 0, "marker": secrets.token_hex(16)}),
        )
        return alone(replace(conversation, launch=launch, decide=lambda trace: "go").run(self.engine))

    def _report_end(self, run: CellRun, description: tuple[str, bool | None], *, reused: bool) -> None:
        cell, (text, bad) = run.cell, description
        if cell.lane.host.machine:
            text = f"{text} ({cell.lane.host.machine})"
        self.progress.trial_ended(
            EndedTrial(lane=str(cell.lane), cell=str(cell), text=text, bad=bad, reused=reused, replicate=cell.replicate)
        )

    def _check_stopped(self) -> None:
        if self.stopped():
            raise Interrupted("interrupted")


def _place_of(error: Exception) -> str:
    """Return the type, place and text of an unexpected error, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}: {str(error)[:200]!a}"


# ---------------------------------------------------------------- what a launch shows about its machine


PAUSE_S = 30.0
"""Pause, in seconds, that lets a GPU cool down after its clocks were held down."""
PORT_IN_USE = re.compile(r"EADDRINUSE|address\s+already\s+in\s+use", re.IGNORECASE)
WITHOUT_SERVER = re.compile(r"could\s+not\s+start\s+gRPC\s+server", re.IGNORECASE)
"""The whole message of TensorFlow, which has printed the reason before."""


NO_NETWORK = re.compile(
    r"name resolution|name or service not known|getaddrinfo failed|network is unreachable|could not resolve"
    r"|failed to resolve|no address associated with hostname|max retries exceeded|couldn't connect to",
    re.IGNORECASE,
)
DENIED = re.compile(r"PermissionError|permission denied", re.IGNORECASE)
READ_ONLY = re.compile(r"read-only file system", re.IGNORECASE)
LONG_SOCKET = "AF_UNIX path too long"
REFUSED = ("setup", "crash")
"""The ends of launches that may have tried what they may not do."""


def _remedy(cell: Cell, trial: Trial) -> str:
    """Return what helps if a trial failed because of something that it may not do; "" if unknown. After its first step,
    only a missing network counts."""
    if cell.lane.host.can.makes_environments:
        is_long = not trial.last_step and LONG_SOCKET in f"{trial.message} {trial.output.tail}"
        return "set TMPDIR to a shorter folder, such as /tmp, for the harness" if is_long else ""
    if NO_NETWORK.search(trial.message) and not cell.variant.scenario.network:
        return "a trial has no network unless it asks for one: `network: true` of the scenario, or --network of try"
    if not trial.last_step and (DENIED.search(trial.message) or READ_ONLY.search(trial.message)):
        return (
            "the image's user may write in the folder of the program and in /tmp: set HOME, or what names that path, "
            "in `environment:`; for root, `cap_add: [DAC_OVERRIDE]` of the scenario helps, too"
        )
    return ""


def _not_its_own(cell: Cell, trial: Trial) -> str:
    """Return why a trial failed by what another program, or the user of the data, keeps from it; "" if unknown."""
    said = trial.output.tail if WITHOUT_SERVER.search(trial.message) else trial.message
    if cell.lane.host.can.sees_ports and trial.end in REFUSED and not trial.last_step and PORT_IN_USE.search(said):
        way = "by {port} in its arguments" if cell.variant.scenario.serve else "as `torchrun --standalone` does"
        return (
            "a port that the program needs is in use on this host, or two of its processes ask for the same one; "
            f"let it take a free one, {way}"
        )
    for mount in cell.variant.scenario.data if DENIED.search(trial.message) and not trial.ended_well else ():
        at = re.escape(mount.at.rstrip("/"))
        if re.search(rf"(?:(?<![\w./-])|(?<=/scenario/)){at}(?![\w.-])", trial.message):
            return f"the launch's user is refused something in {mount.source}"
    return ""


def cannot_run(cell: Cell, prepared: Prepared | None) -> str | None:
    """Return why the cell's image cannot run on its lane's processor and GPUs; None if it can, or if this is unknown.

    `prepared` is the image itself, once it is prepared; before that, only its name is known.
    """
    if prepared is not None and prepared.foreign:
        return prepared.foreign
    needs = compat.needs_of(cell.image)
    if prepared is not None:
        needs = compat.needs_of(cell.image, prepared.environment, prepared.labels)
    reasons = (compat.can_run(needs, gpu) for gpu in cell.lane.gpus)
    return next((reason for reason in reasons if reason is not None), None)


def review(cell: Cell, trial: Trial) -> tuple[Trial, str]:
    """Return a trial as what it shows about the machine makes it, and why its image can never run on this lane, "" if
    it may: a failure that is not the image's own is reclassified, and step times that a GPU's reduced clock disturbed
    are marked. Without a container, another program, or the launch before, may hold a port. A remedy is added to the
    message of a failure that has one.
    """
    if why := _not_its_own(cell, trial):
        return replace(trial, end="infrastructure", message=f"{why}: {trial.message}"), ""
    if trial.end in REFUSED and (remedy := _remedy(cell, trial)):
        trial = replace(trial, message=f"{trial.message}; {remedy}")
    if cell.lane.gpu is None:
        return trial, ""
    held_down = compat.throttled(trial)
    if held_down is not None:
        return replace(trial, conditions=replace(trial.conditions, disturbed=held_down)), ""
    failure = compat.explain_failure(trial)
    if failure is None:
        return trial, ""
    message = f"{failure.why}: {trial.message}" if trial.message else failure.why
    if failure.kind == "oom":
        return replace(trial, end="oom", message=message), ""
    incompatible = failure.why if failure.kind == "incompatible" else ""
    return replace(trial, end="infrastructure", message=message), incompatible
