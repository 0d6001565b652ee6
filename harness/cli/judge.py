"""Defines `harness judge`, which judges files of measurements."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import click

from harness.cli.common import FILE, option, say, to_stdout
from harness.errors import UsageError


@click.command()
@click.argument("traces", type=FILE, nargs=-1, required=True)
@click.option("--history", is_flag=True, help="Judge histories: each file is a CSV of version,value[,round].")
@click.option("--limit", metavar="SHARE", help="For a history: smallest change that counts (default 10%).")
@click.option("--falls", is_flag=True, help="For a history: a lower value is worse.")
@click.option("--json", "as_json", is_flag=True, help="For a history: print a JSON object, as traces always do.")
@click.option("--leak", default="0.5KiB", show_default=True, help="Smallest growth per step that counts as a leak.")
@click.option(
    "--slowdown", default="10%", show_default=True, help="Smallest rise of the step time that counts as a slowdown."
)
@click.option(
    "--metric", multiple=True, metavar="COLUMN[=LIMIT]",
    help="Judge this column too; LIMIT is the smallest growth per step that counts, in the column's unit (default 0).",
)  # fmt: skip
@click.pass_context
def judge(
    context: click.Context, *, traces: tuple[Path, ...], history: bool, limit: str | None, falls: bool, as_json: bool,
    leak: str, slowdown: str, metric: tuple[str, ...],
) -> None:  # fmt: skip
    """Print a verdict on each trace, as one JSON object per line, or on each history of figures.

    A trace is a CSV with a header `step,rss_kib,step_s,gpu_kib` (all but one may be absent), or the .json file of a
    run's trial; - is the standard input. All its steps are used.

    \b
    For example:
      harness judge trace.csv
      harness judge trace.csv --leak 2KiB
      harness judge trace.csv --metric handles=0.1
      harness judge --history throughput.csv --falls --limit 5%

    Exit status: 0 for readable input, whatever the verdicts; 2 if a trace cannot be read (the others are still judged).
    """
    for name in ("leak", "slowdown", "metric") if history else ("limit", "falls"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:  # it would have no effect
            without = "is for traces: leave it out with --history" if history else "is for histories: give --history"
            raise UsageError(f"--{name}: {without}")
    if history:
        _judge_histories(traces, limit=limit or "10%", falls=falls, as_json=as_json)
        return
    from harness.flows.judge import describe, judge_file
    from harness.model import Limits, forms

    limits = Limits(
        signals={"memory": option("--leak", forms.leak_kib, leak)},
        slowdown=option("--slowdown", forms.fraction, slowdown),
    )
    metrics: dict[str, float] = {}
    for text in metric:
        name, _, least = text.partition("=")
        try:
            metrics[name] = float(least or 0)
        except ValueError:
            metrics[name] = math.nan
        if not math.isfinite(metrics[name]):  # with such a limit, no growth would count
            raise UsageError(f"--metric: {text!r} is not COLUMN or COLUMN=LIMIT with a number as limit")

    def judged(path: Path) -> str:
        found = judge_file(path, limits=limits, metrics=metrics, note=lambda text: say(f"note: {text}"))
        return json.dumps(describe(path, found), allow_nan=False)

    _print_each(traces, judged)


def _print_each(paths: tuple[Path, ...], judged: Callable[[Path], str]) -> None:
    """Print the verdict on each file. Raises UsageError at the end, for all files that cannot be judged."""
    refused: list[str] = []
    with to_stdout():
        for path in paths:
            try:
                click.echo(judged(path))
            except UsageError as error:
                refused.append(str(error))
    if refused:
        raise UsageError("\nharness: ".join(refused))


def _judge_histories(paths: tuple[Path, ...], *, limit: str, falls: bool, as_json: bool) -> None:
    from harness.flows.judge import describe_history, judge_history, too_few
    from harness.model import forms
    from harness.report.terminal.series_output import series_lines

    least = option("--limit", forms.fraction, limit)
    if falls and least >= 1:
        raise UsageError(f"--limit: nothing can fall by {limit}; give less than 100%")

    def judged(path: Path) -> str:
        found = judge_history(path, limit=least, falls=falls)
        if as_json:
            return json.dumps(describe_history(found), allow_nan=False)
        return "\n".join(series_lines(found, why=too_few(found)))

    _print_each(paths, judged)
