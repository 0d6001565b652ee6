"""Makes the result of each probe from the launches that it made. Every function but `size_try` raises Unreadable."""

from __future__ import annotations

from dataclasses import replace

from harness.model import Probed, SizeTry
from harness.probes.leaks import read_leaks
from harness.probes.looked import Looked
from harness.probes.oom import read_oom
from harness.probes.probe_files import read_lines, read_ops

NO_OPS = (
    "no operation was reported in the traced steps; newer versions of TensorFlow report none in eager mode: trace a "
    "scenario in graph mode, or return the operations from trace_step()"
)
LEAKS = "valgrind.json"


def probed_files(blank: Probed, looked: Looked) -> Probed:
    return replace(blank, problem=looked.problem, files=looked.files)


def probed_ops(blank: Probed, looked: Looked) -> Probed:
    probed = probed_files(blank, looked)
    if "optrace.json" not in looked.files:
        return probed
    operations = read_ops(looked.files["optrace.json"])
    return replace(probed, ops=operations, problem=probed.problem or ("" if operations else NO_OPS))


def probed_lines(blank: Probed, looked: Looked) -> Probed:
    probed = probed_files(blank, looked)
    if "lines.json" not in looked.files:
        return probed
    functions = read_lines(looked.files["lines.json"])
    idle = [each.name for each in functions if not any(row.hits or row.occurrences for row in each.rows)]
    uncalled = f"{', '.join(idle)}: not called in {blank.probe.steps} steps, in the scenario's own process"
    return replace(probed, functions=functions, problem=probed.problem or (uncalled if idle else ""))


def probed_leaks(blank: Probed, looked: Looked, control: Looked) -> Probed:
    """Return the leaks relative to a control with one step: blocks that both lose are lost once, not in each step."""
    probed = probed_files(blank, looked)
    if probed.problem or LEAKS not in looked.files:
        return probed
    if control.problem or LEAKS not in control.files:
        return replace(probed, problem=f"the control: {control.problem or 'valgrind left no report'}")
    found, errors, problem = read_leaks(
        looked.files[LEAKS], control.files[LEAKS], further_steps=blank.probe.steps - 1
    )  # fmt: skip
    # A process that does not exit by itself is stopped: the trial's message says so, even if the report is complete.
    problem = ": ".join(dict.fromkeys(filter(None, (problem, looked.trial.message, control.trial.message))))
    files = {**looked.files, "control.valgrind.json": control.files[LEAKS]}
    return replace(probed, leaks=found, errors=errors, problem=problem, files=files)


def probed_leaks_of_command(blank: Probed, looked: Looked) -> Probed:
    """Divide the total leak of a command by its steps; without `step_pattern`, by one. A command that failed also
    leaves a report, unless it was killed.
    """
    probed = probed_files(blank, looked)
    if LEAKS not in looked.files:
        missing = ": ".join(filter(None, ("valgrind left no report", looked.trial.message)))
        return replace(probed, problem=looked.problem or missing)
    steps = looked.trial.last_step if blank.variant.scenario.step_pattern else 1
    found, errors, problem = read_leaks(looked.files[LEAKS], None, further_steps=max(1, steps))
    if problem:  # the report is incomplete: the command was killed at the time limit
        problem = ": ".join(filter(None, (problem, looked.trial.message)))
    return replace(probed, leaks=found, errors=errors, problem=probed.problem or problem)


def size_try(size: int, looked: Looked) -> SizeTry:
    """Return how the launch with a size ended, with the report of what took the memory if it printed one."""
    trial = looked.trial
    return SizeTry(
        size=size,
        fits=not looked.problem,
        end=trial.end,
        peak_rss_kib=trial.peak_rss_kib,
        message=looked.problem,
        oom=read_oom(f"{trial.message}\n{trial.output_tail}") if looked.problem else None,
    )
