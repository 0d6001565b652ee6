"""Runs the probes of scenarios in separate launches, and keeps their results, for `harness probe`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import EngineUnreachable, InfrastructureError, Interrupted, UsageError
from harness.flows.context import RunContext
from harness.flows.hosts import OpenHost, first_usable, in_threads, lanes_of, using_hosts
from harness.flows.looking import Looked, Looking
from harness.flows.sweep import SweepOptions
from harness.model import Cell, Plan, Prepared, Probe
from harness.plan.cells import with_lanes
from harness.probes import reading as probes
from harness.probes.reading import (
    Unreadable,
    asked_probes,
    nothing_asked,
    probes_to_run,
    search_largest,
    sizes_of,
    with_size,
)
from harness.probes.records import Probed, SizeTry
from harness.probes.results import keep_probes
from harness.store import RunDirectory

MOST_STEPS = 10**6
"""Limit on the steps of a command that runs until it exits by itself."""


def probe(plan: Plan, options: SweepOptions, context: RunContext, *, names: Sequence[str]) -> tuple[list[Probed], Path]:
    """Run the probes that the selected scenarios ask for, one after the other; if `names` is not empty, only those.

    Return their results, and the directory that holds them: `probes.json`, and a folder of files for each probe.
    Raises UsageError if there is no probe to run, Interrupted, EngineUnreachable.
    """
    scenarios = {row.variant.scenario.name: row.variant.scenario for row in plan.rows}
    if not any(asked_probes(scenario, names) for scenario in scenarios.values()):
        raise UsageError(f"{plan.matrix.path}: {nothing_asked(scenarios.values(), names)}")
    with using_hosts(plan.images, context, one=True) as opened:
        if context.stopped.is_set():
            raise Interrupted("interrupted; nothing was started")
        directory = RunDirectory.create(out=options.out, matrix=f"{plan.matrix.name}-probes", now=context.now())
        found: list[Probed] = []
        images: PreparedImages = {}
        for cell, each in probes_to_run(with_lanes(plan, lanes_of(opened)).cells, names):
            host = first_usable([machine for machine in opened if machine.part_of == cell.lane.host])
            found.append(_one(cell, each, host, context, images))
            keep_probes(found, directory)  # after each probe, so that an interruption loses no result
    return found, directory.path


PreparedImages = dict[tuple[str, str, str], Prepared | InfrastructureError]
"""The prepared image, or the error that prevented it, by host, series and version: it is tried only once."""


def _one(cell: Cell, each: Probe, host: OpenHost, context: RunContext, images: PreparedImages) -> Probed:
    """Run one probe of a cell. The host is leased, because a probe would disturb the measurements of a sweep there."""
    blank = Probed(probe=each, cell=cell)
    engine = host.engine
    if engine is None or host.problem is not None:
        return replace(blank, problem=host.problem or "the host could not be opened")
    name = (cell.lane.host.name, cell.image.series, cell.image.version)
    try:
        image = images.get(name)
        if image is None:
            say = context.preparing(lane=str(cell.lane), image=f"{cell.image.series} {cell.image.version}")
            image = images[name] = engine.prepare(cell.image, say)
        if isinstance(image, InfrastructureError):
            return replace(blank, problem=str(image))
        looking = Looking(engine=engine, cell=host.own(cell), context=context, prepared=image)
        with engine.lease(context.showing(lane=host.host.name, image="lease"), context.stopped.is_set):
            return FINDERS[each.name](looking, blank)
    except (EngineUnreachable, Interrupted):
        raise
    except (InfrastructureError, Unreadable) as error:
        if name not in images and isinstance(error, InfrastructureError):
            images[name] = error
        return replace(blank, problem=str(error))


def _launch(looking: Looking, blank: Probed) -> Looked:
    probe = blank.probe
    return looking.launch(blank.cell.variant, steps=probe.steps, probe={"name": probe.name, **dict(probe.settings)})


def _files(looking: Looking, blank: Probed) -> Probed:
    return probes.probed_files(blank, _launch(looking, blank))


def _leaks(looking: Looking, blank: Probed) -> Probed:
    """Run a command once until it exits; run anything else with a control at the same time. Valgrind keeps one
    processor busy and counts blocks, not seconds, so neither launch disturbs the other.
    """
    if blank.cell.variant.scenario.script is None:
        looked = looking.launch(blank.cell.variant, steps=MOST_STEPS, probe={"name": "valgrind"})
        return probes.probed_leaks_of_command(blank, looked)
    launches: dict[str, Looked] = {}
    with looking.control() as other:
        in_threads(
            [
                lambda: launches.update(looked=_launch(looking, blank)),
                lambda: launches.update(control=other.launch(blank.cell.variant, steps=1, probe={"name": "valgrind"})),
            ]
        )
    return probes.probed_leaks(blank, **launches)


def _largest(looking: Looking, blank: Probed) -> Probed:
    """Try each size in a launch of its own. A failure other than running out of memory ends the search."""
    param, sizes = sizes_of(blank.cell.variant, blank.probe)
    problems: list[str] = []

    def attempt(size: int) -> SizeTry:
        if problems:
            return SizeTry(size=size, fits=False, end="not tried")
        looked = looking.launch(with_size(blank.cell.variant, param, size), steps=blank.probe.steps, probe=None)
        if looked.problem and not looked.trial.ran_out_of_memory:
            problems.append(f"{param}={size}: {looked.problem}")
        return probes.size_try(size, looked)

    tries = tuple(each for each in search_largest(attempt, sizes) if each.end != "not tried")
    return replace(blank, tries=tries, problem="; ".join(problems))


FINDERS: Mapping[str, Callable[[Looking, Probed], Probed]] = {
    "optrace": _files, "lines": _files, "artifacts": _files, "valgrind": _leaks, "largest": _largest,
}  # fmt: skip
