"""Checks every host, and which image can run where, for `harness doctor`. It runs nothing but a control, and pulls
nothing but an image for the query for GPUs, if an engine has none."""

from __future__ import annotations

import functools
import itertools
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness import compat
from harness.errors import HarnessError, InfrastructureError, Interrupted
from harness.flows.context import RunContext
from harness.flows.estimate import ScenarioReplicates, newest_runs, noise_between, predicted_effects, replicates_of
from harness.flows.hosts import OpenHost, in_threads, lanes_of, using_hosts
from harness.flows.sweep import SweepOptions, selected
from harness.judge.comparison.noise import Replicates
from harness.matrix.draft import GPU_FILE
from harness.model import (
    Host,
    HostState,
    Image,
    Install,
    Plan,
    PredictedEffect,
    Prepared,
    Pull,
    Scenario,
    Steps,
    Trial,
    Variant,
    Varied,
    Where,
    grouped,
)
from harness.model.answers import Checkup, HostCheck, HostCondition, ImageFit
from harness.model.matrix import Gpu
from harness.plan.cells import with_lanes
from harness.plan.equal_machines import unlike
from harness.registry.registry_client import Registry
from harness.run import owners
from harness.run.docker import docker_client
from harness.run.engine import LaunchRequest
from harness.run.hosts.mounted_data import missing_data
from harness.run.hosts.side_by_side import SLICE_S, take_turns, takes_turns
from harness.run.images.disk_budget import (
    ImageName,
    RegistryAnswers,
    architecture_of,
    bases_of,
    name_of,
    reference_of,
    wanted,
)
from harness.run.trial.conversation import Conversation, Sliced, alone
from harness.run.trial.payload import pack


@dataclass(kw_only=True, eq=False)
class Examined:
    """A machine, and what its engine answered about itself and about the images that it has, each with its size in
    bytes.

    `bases` are the local bases of images that are not installed yet, by reference: a registry need not have them.
    `replicates`: the A/A pairs of earlier runs, by scenario, and `predicted` what they say will show. `control`: the
    control, or why it was not measured; None if it is not needed.
    """

    machine: OpenHost
    condition: HostCondition | None = None
    images: dict[ImageName, tuple[Prepared, int]] = field(default_factory=dict)
    bases: dict[str, Prepared] = field(default_factory=dict)
    replicates: Mapping[str, ScenarioReplicates] = field(default_factory=dict)
    predicted: tuple[PredictedEffect, ...] = ()
    control: Control | str | None = None
    missing: tuple[str, ...] = ()

    def of(self, image: Image) -> Prepared | None:
        """Return the image, or the base that it will be installed over; None if the engine has neither."""
        if name_of(image) in self.images:
            return self.images[name_of(image)][0]
        return self.bases.get(image.source.base) if isinstance(image.source, Install) else None

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return tuple({gpu.uuid: gpu for lane in self.machine.lanes for gpu in lane.gpus}.values())


MACHINE = """version: 1
name: this-machine
series: {this-machine: {vary: HARNESS_DOCTOR, versions: [as it is]}}
hosts: {process: {engine: process, gpus: %s}}
scenarios: {control: {command: ["true"]}}
"""
"""The matrix file without images by which this machine is checked."""


def machine_plan(context: RunContext) -> tuple[Plan, Mapping[Host, list[Image]]]:
    """Return what is checked of this machine, and its hosts with their images: none for Docker, if it is here."""
    with owners.folder_for_files() as folder:
        path = folder / "machine.yaml"
        path.write_text(MACHINE % ("all" if GPU_FILE.exists() else "none"))
        plan = selected(path, SweepOptions(), context.environ)
    has_docker = docker_client.is_configured(environ=context.environ)
    if not has_docker:
        context.progress.note("no Docker found, so only the engine `process` is checked")
    docker = Host(name="docker", engine="docker", gpus="none", where=Where(file="docker", line=0, key=""))
    return plan, {**({docker: []} if has_docker else {}), **plan.images}


def check(
    matrix: Path | None, *, hosts: tuple[str, ...], source: Path, context: RunContext, registry: Registry
) -> Checkup:
    """Check the hosts of a matrix (all, or those in `hosts`) and all images on them; without a matrix, this machine.
    `source`: the folder of earlier runs.

    A host that cannot be used has a `problem`. Raises MatrixError, UsageError, Interrupted.
    """
    if matrix is None:
        plan, images = machine_plan(context)
    else:
        plan = selected(matrix, SweepOptions(hosts=hosts), context.environ)
        images = plan.images
    interrupted = Interrupted("interrupted; nothing was changed")
    try:
        with using_hosts(images, context) as every:
            found = [Examined(machine=each) for each in _given(every, context)]
            in_threads([functools.partial(_look, own, context) for own in found], context.stopped)
            plan = with_lanes(plan, lanes_of([own.machine for own in found]))
            runs = newest_runs(source / plan.matrix.name)
            for own in found:
                each = own.machine
                rows = [row for row in plan.rows if row.lane.host == each.part_of]
                if each.engine is not None:
                    with each.noting_problem():
                        own.missing = missing_data(each.engine, [row.variant.scenario for row in rows])
                own.replicates = replicates_of(runs, plan, each.part_of, machine=each.host.machine)
                own.predicted = predicted_effects(own.replicates, plan)
            pools = grouped((own.machine.part_of, own) for own in found).values()
            for pool in pools if not context.stopped.is_set() else ():
                usable = [own for own in pool if own.machine.usable and own.machine.images]
                if len(usable) > 1 or not all(own.predicted for own in usable):
                    measure(usable, context)
        if context.stopped.is_set():
            raise interrupted
        told = RegistryAnswers(registry=registry, say=context.preparing(lane="registries", image="images"))
        # The machines of a pool are equal, so one of them is asked which images fit; a usable one if possible.
        one_each = [max(pool, key=lambda own: own.machine.usable) for pool in pools]
        return Checkup(
            matrix=plan.matrix.name,
            hosts=tuple(_host_check(own, pool, plan, told) for pool in pools for own in pool),
            fits=() if matrix is None else tuple(fit for own in one_each for fit in _fits(own, told)),
        )
    except Interrupted as error:
        raise interrupted from error


def _given(machines: Sequence[OpenHost], context: RunContext) -> list[OpenHost]:
    """Return the machines, except nodes that the queue of a cluster does not grant immediately; a note counts these."""
    for host, own in grouped((each.part_of, each) for each in machines).items():
        if (given := sum(not each.awaited for each in own)) < len(own):
            text = f"the queue gives {given} of {len(own)} nodes now"
            context.progress.note(f"{host.name}: {text}; a sweep begins with these, and takes the others as they come")
    return [each for each in machines if not each.awaited]


def _look(own: Examined, context: RunContext) -> None:
    each = own.machine
    if each.engine is None:
        return
    with each.noting_problem():
        own.condition = each.engine.condition(context.preparing(lane=each.host.name, image="engine"))
        for image in each.images:
            say = context.preparing(lane=each.host.name, image=f"{image.series} {image.version}")
            say("looking for it")
            if (found := each.engine.look(image, say)) is not None:
                size_bytes = 0 if isinstance(image.source, Varied) else each.engine.size_bytes(found)
                own.images[name_of(image)] = found, size_bytes
            elif isinstance(image.source, Install) and not each.host.can.makes_environments:
                base = replace(image, source=Pull(reference=image.source.base))
                if (found := each.engine.look(base, say)) is not None:
                    own.bases[image.source.base] = found


def _host_check(own: Examined, pool: Sequence[Examined], plan: Plan, told: RegistryAnswers) -> HostCheck:
    each = own.machine
    missing = [image for image in each.images if name_of(image) not in own.images]
    bases = bases_of(each.images) if each.host.can.makes_environments else own.bases
    needs = None
    if each.usable:
        architecture = each.host.architecture or architecture_of(each.facts)
        needs = wanted(each.images, missing, told, architecture=architecture, at_hand=bases)
    control, predicted, odd = own.control, own.predicted, ""
    known = own.replicates
    if isinstance(control, str):
        control, odd = None, f"the control was not measured: {control}"
    elif control is not None:
        times = {one.machine.host.machine: one.control.ms for one in pool if isinstance(one.control, Control)}
        odd = unlike(times).get(each.host.machine, "")
        of_control = {"the control": (STEPS, [control.pairs])}
        predicted = predicted or predicted_effects(of_control, plan)
        known = {**known, **of_control}
    return HostCheck(
        host=each.host,
        problem=each.problem,
        condition=own.condition,
        gpus=own.gpus,
        lanes=tuple(dict.fromkeys(row.lane for row in plan.rows if row.lane.host == each.part_of)),
        wanted=needs,
        noise={name: noise for name, pairs in known.items() if (noise := noise_between(pairs)) is not None},
        predicted=predicted,
        control_ms=None if control is None else control.ms,
        odd=odd,
        missing=own.missing,
    )


def _fits(own: Examined, told: RegistryAnswers) -> list[ImageFit]:
    """Return how each image fits each GPU; on a host without GPUs, how it fits the host."""
    # Environments need no image, so a base does not matter there.
    each = own.machine
    asked = told if each.problem is None and not each.host.can.makes_environments else None
    return [_fit(image, gpu, own, asked) for gpu in own.gpus or (None,) for image in each.images]


def _fit(image: Image, gpu: Gpu | None, own: Examined, told: RegistryAnswers | None) -> ImageFit:
    """Return how an image fits a GPU, by its facts from the engine if it has the image, else from the registry
    (`told`; None: do not ask it), else from its name.
    """
    each, reference, there = own.machine, reference_of(image), own.images.get(name_of(image))
    architecture = each.host.architecture or architecture_of(each.facts)
    known = own.of(image) or (told.facts(reference, architecture) if told and reference is not None else None)
    state = HostState(host=each.part_of, problem=each.problem)
    needs = compat.needs_of(image) if known is None else compat.needs_of(image, known.environment, known.labels)
    found = compat.compatibility_on(state, gpu, needs)
    foreign = there[0].foreign if there else ""
    fit = ImageFit(
        host=state.host.name,
        gpu=gpu,
        series=image.series,
        version=image.version,
        state="incompatible" if foreign else found.state,
        why=foreign or found.why,
        at_hand=there is not None,
        bytes=there[1] if there else None,
    )
    if told is None or reference is None:
        return fit
    if not there and isinstance(image.source, Pull):
        layers = told.layers(image.source.reference, architecture)
        fit = replace(fit, bytes=None if isinstance(layers, str) else sum(layers.values()))
    if own.of(image) is None and told.is_denied(reference, architecture):
        return replace(fit, state="unknown", why=str(told.layers(reference, architecture)))
    return fit


# ---------------------------------------------------------------- control


SCRIPT = '''"""The control: a loop of Python, and a copy of 16 MiB."""
def setup():
    data = bytearray(16 << 20)
    def step():
        total = 0
        for number in range(40000):
            total += number & 3
        return {"ended": total + len(bytes(data))}
    return step
'''
STEPS = Steps(first=500, budget=500)
MEASURE_S = 24.0
"""Seconds in which pairs of launches of the control run again and again: one after the other, and in slices."""
LEASE_WAIT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Control:
    """The step time of the control, that of its fastest launch because disturbances only slow a launch, and its A/A
    pairs."""

    ms: float
    pairs: list[Replicates]


def measure(machines: Sequence[Examined], context: RunContext) -> None:
    """Set the control of each machine, or why it could not be measured.

    The machines are those of one pool, or there is only one. The control runs in the first image of the matrix that is
    the same on all of them. A machine is leased while its control runs; the wait for a machine that is in use takes at
    most LEASE_WAIT_S.
    """
    digests = [{name: image.digest for name, (image, _) in own.images.items()} for own in machines]
    name = next((name for name in digests[0] if len({held.get(name) for held in digests}) == 1), None)
    if name is None:
        where = "all machines of the pool" if len(machines) > 1 else "this host yet"
        for own in machines:
            own.control = f"no image of the matrix is on {where}; a sweep puts them there, and `--quick` makes it short"
        return
    with owners.folder_for_files() as folder:
        script = folder / "control.py"
        script.write_text(SCRIPT)
        in_threads([functools.partial(_measure, own, name, script, context) for own in machines], context.stopped)


def _measure(own: Examined, name: ImageName, script: Path, context: RunContext) -> None:
    each, (prepared, _) = own.machine, own.images[name]
    say = context.showing(lane=each.host.full_name, image="control")
    until_s = time.monotonic() + LEASE_WAIT_S
    assert each.engine is not None, "only machines that can be used are measured"
    try:
        with each.engine.lease(say, lambda: context.stopped.is_set() or time.monotonic() > until_s):
            say(f"measured for {MEASURE_S:.0f} s")
            own.control = _control(each, prepared, script, context)
    except Interrupted:
        if context.stopped.is_set():
            raise
        own.control = "the machine is in use; run doctor again when it is free"
    except HarnessError as error:  # the other machines are still measured
        own.control = str(error)


def _control(each: OpenHost, prepared: Prepared, script: Path, context: RunContext) -> Control:
    """Launch pairs alone and in slices, at least one of each, as long as others fit into MEASURE_S."""
    launch = functools.partial(_launch, each, prepared, script, context)
    begun_s, cycles, apart, together = time.monotonic(), itertools.count(1), list[Replicates](), list[Replicates]()
    while not apart or (time.monotonic() - begun_s) * (len(apart) + 1) / len(apart) < MEASURE_S:
        apart.append((alone(launch(number=len(apart))), alone(launch(number=len(apart)))))
        if not takes_turns(each.host, context.environ):
            continue
        kept: list[Trial] = []

        def kept_launch(kept: list[Trial] = kept) -> Sliced[None]:
            kept.append((yield from launch(number=len(apart), slices=2)))

        take_turns([kept_launch] * 2, seconds=SLICE_S, cycles=cycles, rng=random.Random())
        together.append((kept[0], kept[1]))
    return Control(ms=min(_step_ms(trial) for pair in apart for trial in pair), pairs=[*apart, *together])


def _launch(
    each: OpenHost, prepared: Prepared, script: Path, context: RunContext, *, number: int, slices: int = 0
) -> Sliced[Trial]:
    """Launch the control. Raises Interrupted, InfrastructureError."""
    assert each.engine is not None
    scenario = Scenario(name="control", where=each.host.where, script=script, steps=STEPS, timeout_s=120.0)
    payload = pack(Variant(scenario=scenario), extras={"slices": slices})
    launch = LaunchRequest(prepared=prepared, scenario=scenario, payload=payload, run="doctor", cell_id="control")
    conversation = Conversation(launch=launch, round=number, cancelled=context.stopped.is_set)
    trial = yield from conversation.run(each.engine)
    if trial.end == "interrupted":
        raise Interrupted("interrupted")
    if trial.end != "completed" or trial.trace is None or trial.trace.column("step_s") is None:
        raise InfrastructureError(f"the control ended as {trial.end}: {trial.message or 'no step was timed'}")
    return trial


def _step_ms(trial: Trial) -> float:
    """Return the median step time in milliseconds, without the first half of the steps, in which clocks speed up."""
    assert trial.trace is not None
    return 1000.0 * float(statistics.median(trial.trace.columns["step_s"][STEPS.budget // 2 :].tolist()))
