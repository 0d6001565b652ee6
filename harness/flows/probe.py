"""Runs the probes of scenarios in separate launches, and keeps their results, for `harness probe`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.errors import EngineUnreachable, InfrastructureError, Interrupted, UsageError
from harness.flows.parts.context import RunContext
from harness.flows.parts.hosts.machines import OpenHost, first_usable, lanes_of
from harness.flows.parts.hosts.opening import using_hosts
from harness.flows.parts.hosts.threads import in_threads
from harness.flows.parts.looking_inside import Looked, Looking
from harness.flows.sweep import SweepOptions
from harness.model import Cell, Plan, Probe, Probed, SizeTry, Variant
from harness.plan.cells import Selection, make_plan
from harness.probes.largest import search_largest
from harness.probes.leaks import read_leaks
from harness.probes.oom import read_oom
from harness.probes.probe_files import Unreadable, read_lines, read_ops
from harness.run.engine import Engine, Prepared
from harness.store import RunDirectory
from harness.store.saved_probes import keep_probes

MOST_STEPS = 10**6
"""Limit on the steps of a command that runs until it exits by itself."""
NO_OPS = (
    "no operation was reported in the traced steps; newer versions of TensorFlow report none in eager mode: trace a "
    "scenario in graph mode, or return the operations from trace_step()"
)


def probe(
    selection: Selection, options: SweepOptions, context: RunContext, *, names: Sequence[str]
) -> tuple[list[Probed], Path]:
    """Run the probes that the selected scenarios ask for, one after the other; if `names` is not empty, only those.

    Return their results, and the directory that holds them: `probes.json`, and a folder of files for each probe.
    Raises UsageError if there is no probe to run, Interrupted, EngineUnreachable.
    """
    if not any(_probes(variant, names) for variant, _, _ in selection.combinations):
        raise UsageError(_nothing(selection, names))
    with using_hosts(selection.images, context, one=True) as opened:
        if context.stopped.is_set():
            raise Interrupted("interrupted; nothing was started")
        directory = RunDirectory.create(out=options.out, matrix=f"{selection.matrix.name}-probes", now=context.now())
        found: list[Probed] = []
        for each in _all(make_plan(selection, lanes_of(opened)), opened, names, context):
            found.append(each)
            keep_probes(found, directory)  # after each probe, so that an interruption loses no result
    return found, directory.path


def _probes(variant: Variant, names: Sequence[str]) -> list[Probe]:
    return [each for each in variant.scenario.probes if not names or each.name in names]


def _nothing(selection: Selection, names: Sequence[str]) -> str:
    scenarios = {variant.scenario.name: variant.scenario for variant, _, _ in selection.combinations}
    requested = "; ".join(
        f"{name}: {', '.join(x.name for x in each.probes) or 'none'}" for name, each in scenarios.items()
    )
    what = f"probe {' or '.join(names)}" if names else "probes"
    return f"{selection.matrix.path}: no selected scenario has {what} (scenarios.NAME.probes); they have: {requested}"


PreparedImages = dict[tuple[str, str, str], Prepared | InfrastructureError]
"""The prepared image, or the error that prevented it, by host, series and version."""


def _all(plan: Plan, hosts: Sequence[OpenHost], names: Sequence[str], context: RunContext) -> Iterator[Probed]:
    """Probe cell by cell in the plan's order. Cells that differ only in the param that `largest` searches share one
    search.
    """
    searched: set[str] = set()
    images: PreparedImages = {}
    for cell in plan.cells:
        machines = [each for each in hosts if each.part_of == cell.lane.host]
        host = first_usable(machines)
        for each in _probes(cell.variant, names):
            if cell.excluded:
                continue
            if each.name == "largest":
                family = f"{cell.image} {cell.lane} {_without(cell.variant, _param(each))}"
                if family in searched:
                    continue
                searched.add(family)
            yield _one(cell, each, host, context, images)


def _one(cell: Cell, each: Probe, host: OpenHost, context: RunContext, images: PreparedImages) -> Probed:
    """Run one probe of a cell. The host is leased, because a probe would disturb the measurements of a sweep there."""
    blank = Probed(probe=each, image=cell.image, lane=cell.lane, variant=cell.variant)
    if host.engine is None or host.problem is not None:
        return replace(blank, problem=host.problem or "the host could not be opened")
    try:
        looking = Looking(
            engine=host.engine,
            cell=host.own(cell),
            context=context,
            prepared=_prepared(host.engine, cell, context, images),
        )
        say = context.showing(lane=host.host.name, image="lease")
        with host.engine.lease(say, context.stopped.is_set):
            return FINDERS[each.name](looking, blank)
    except (EngineUnreachable, Interrupted):
        raise
    except (InfrastructureError, Unreadable) as error:
        return replace(blank, problem=str(error))


def _prepared(engine: Engine, cell: Cell, context: RunContext, images: PreparedImages) -> Prepared:
    """Return the cell's image. An image that cannot be prepared is tried only once. Raises InfrastructureError,
    Interrupted.
    """
    name = (cell.lane.host.name, cell.image.series, cell.image.version)
    if name not in images:
        try:
            say = context.preparing(lane=str(cell.lane), image=f"{cell.image.series} {cell.image.version}")
            images[name] = engine.prepare(cell.image, say)
        except EngineUnreachable:
            raise
        except InfrastructureError as error:
            images[name] = error
    image = images[name]
    if isinstance(image, InfrastructureError):
        raise image
    return image


# ---------------------------------------------------------------- each probe


def _plain(looking: Looking, blank: Probed) -> tuple[Probed, Looked]:
    probe = blank.probe
    looked = looking.launch(blank.variant, steps=probe.steps, probe={"name": probe.name, **dict(probe.settings)})
    return replace(blank, problem=looked.problem, files=looked.files), looked


def _ops(looking: Looking, blank: Probed) -> Probed:
    probed, looked = _plain(looking, blank)
    if "optrace.json" not in looked.files:
        return probed
    operations = read_ops(looked.files["optrace.json"])
    return replace(probed, ops=operations, problem=probed.problem or ("" if operations else NO_OPS))


def _lines(looking: Looking, blank: Probed) -> Probed:
    probed, looked = _plain(looking, blank)
    if "lines.json" not in looked.files:
        return probed
    functions = read_lines(looked.files["lines.json"])
    idle = [each.name for each in functions if not any(row.hits or row.occurrences for row in each.rows)]
    uncalled = f"{', '.join(idle)}: not called in {blank.probe.steps} steps, in the scenario's own process"
    return replace(probed, functions=functions, problem=probed.problem or (uncalled if idle else ""))


def _leaks(looking: Looking, blank: Probed) -> Probed:
    """Run the cell and, at the same time, a control with one step: blocks that both lose are lost once, not in each
    step. Valgrind keeps one processor busy and counts blocks, not seconds, so neither launch disturbs the other.
    """
    if blank.variant.scenario.script is None:
        return _leaks_of_command(looking, blank)
    tables: list[tuple[Probed, Looked]] = []
    controls: list[Looked] = []
    with looking.control() as other:
        in_threads(
            [
                lambda: tables.append(_plain(looking, blank)),
                lambda: controls.append(other.launch(blank.variant, steps=1, probe={"name": "valgrind"})),
            ]
        )
    ((probed, looked),), (control,) = tables, controls
    if probed.problem or "valgrind.json" not in looked.files:
        return probed
    if control.problem or "valgrind.json" not in control.files:
        return replace(probed, problem=f"the control: {control.problem or 'valgrind left no report'}")
    found, errors, problem = read_leaks(
        looked.files["valgrind.json"], control.files["valgrind.json"], further_steps=blank.probe.steps - 1
    )
    files = {**looked.files, "control.valgrind.json": control.files["valgrind.json"]}
    # A process that does not exit by itself is stopped: the trial's message says so, even if the report is complete.
    problem = ": ".join(dict.fromkeys(filter(None, (problem, looked.trial.message, control.trial.message))))
    return replace(probed, leaks=found, errors=errors, problem=problem, files=files)


def _leaks_of_command(looking: Looking, blank: Probed) -> Probed:
    """Run a command once until it exits, and divide its total leak by its steps; without `step_pattern`, by one. A
    command that failed also leaves a report, unless it was killed.
    """
    looked = looking.launch(blank.variant, steps=MOST_STEPS, probe={"name": "valgrind"})
    probed = replace(blank, problem=looked.problem, files=looked.files)
    if "valgrind.json" not in looked.files:
        missing = ": ".join(filter(None, ("valgrind left no report", looked.trial.message)))
        return replace(probed, problem=looked.problem or missing)
    steps = looked.trial.last_step if blank.variant.scenario.step_pattern else 1
    found, errors, problem = read_leaks(looked.files["valgrind.json"], None, further_steps=max(1, steps))
    if problem:  # the report is incomplete: the command was killed at the time limit
        problem = ": ".join(filter(None, (problem, looked.trial.message)))
    return replace(probed, leaks=found, errors=errors, problem=probed.problem or problem)


def _largest(looking: Looking, blank: Probed) -> Probed:
    """Try each size in its own launch, under the scenario's memory limit. A failure other than running out of memory
    ends the search.
    """
    param = _param(blank.probe)
    sizes = [value for name, values in blank.variant.scenario.params if name == param for value in values]
    problems: list[str] = []

    def attempt(size: int) -> SizeTry:
        if problems:
            return SizeTry(size=size, fits=False, end="not tried")
        looked = looking.launch(_with(blank.variant, param, size), steps=blank.probe.steps, probe=None)
        trial = looked.trial
        if looked.problem and not trial.ran_out_of_memory:
            problems.append(f"{param}={size}: {looked.problem}")
        return SizeTry(
            size=size,
            fits=not looked.problem,
            end=trial.end,
            peak_rss_kib=trial.peak_rss_kib,
            message=looked.problem,
            oom=read_oom(f"{trial.message}\n{trial.output_tail}") if looked.problem else None,
        )

    tries = search_largest(attempt, [size for size in sizes if isinstance(size, int)])
    told = tuple(each for each in tries if each.end != "not tried")
    return replace(blank, tries=told, problem="; ".join(problems))


FINDERS: Mapping[str, Callable[[Looking, Probed], Probed]] = {
    "optrace": _ops, "lines": _lines, "valgrind": _leaks, "largest": _largest,
    "artifacts": lambda looking, blank: _plain(looking, blank)[0],
}  # fmt: skip


def _param(probe: Probe) -> str:
    return str(dict(probe.settings)["param"])


def _with(variant: Variant, param: str, value: int) -> Variant:
    return replace(variant, params=tuple((name, value if name == param else old) for name, old in variant.params))


def _without(variant: Variant, param: str) -> str:
    return str(replace(variant, params=tuple(pair for pair in variant.params if pair[0] != param)))
