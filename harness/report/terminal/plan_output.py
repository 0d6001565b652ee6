"""Writes the output of `--dry-run`: what a plan launches and costs."""

from __future__ import annotations

from collections.abc import Iterator

from harness import amounts
from harness.model import Explanation, HostCost
from harness.report.blocks import Block, Items, ReportSection
from harness.report.terminal.plain_printer import indented
from harness.report.text.signal_words import predicted_text


def dry_run(plan: Explanation) -> str:
    """Return the plan as text: a line for the whole plan, then lines for each host, then lines for what is left out."""
    left_out = f", {plan.excluded} left out" if plan.excluded else ""
    in_all = " in all" if plan.estimate and plan.estimate.reused else ""
    title = f"{plan.matrix}: {_cells(plan)}{left_out}; {_launches(plan)}{in_all}; seed {plan.seed}"
    return "\n".join(indented(ReportSection(title=title, blocks=tuple(_blocks(plan)))))


def _blocks(plan: Explanation) -> Iterator[Block]:
    if plan.searched:
        yield "the expected number assumes that each search has one clear change; otherwise more are needed"
    if plan.estimate is not None:
        reused, time = plan.estimate.reused, amounts.duration(plan.estimate.seconds)
        launches = sum(plan.estimate.launches.values()) - reused
        cost = f"about {launches:,} launches, about {time}, as in earlier runs" if launches else "no launches"
        yield f"{cost}; {reused:,} are reused, unless an image, a host or a file has changed" if reused else cost
        yield from (f"new: {text}" for text in plan.estimate.beside)
    for host in plan.hosts:
        share = f": {amounts.count(host.cells, 'cell')}, {_launches(host)}" if len(plan.hosts) > 1 else ""
        title = f"{host.name} ({host.engine}{_cards(host)}){share}"
        yield ReportSection(title=title, blocks=tuple(_of_host(host, is_estimated=plan.estimate is not None)))
    for name, every in plan.estimate.predicted.items() if plan.estimate else ():
        yield from (f"{name}: {predicted_text(each)}" for each in every)
    if not plan.estimate or not any(plan.estimate.predicted.values()):
        has_images = any(host.images or host.images_if_asked for host in plan.hosts)
        how = "`harness doctor` finds out in half a minute" + ", on a host that has one of these images" * has_images
        yield f"no run has shown yet which changes will show here: {how}"
    yield from plan.data
    yield from (f"left out: {text}" for text in plan.left_out)
    yield "not counted: pulls, builds and A/A replicates, one launch in each round of a scenario on a host"
    yield "how long the steps take is known only when they run"


def _of_host(host: HostCost, *, is_estimated: bool) -> Iterator[Block]:
    if not is_estimated:
        worst, expected = amounts.duration(host.worst_s), amounts.count(host.launches_expected, "launch")
        yield f"{expected}; if every one reached its `timeout`, they would take {worst}; most end sooner"
    if host.fills:
        where = " on each GPU" if len(host.lanes) > 1 else ""
        each = f"one for each version and variant that is launched{where}"
        yield f"{amounts.count(host.fills, 'more launch')} to fill warm caches: {each}"
    yield from (f"prepare {image}" for image in host.images)
    yield from (f"run {command}" for command in host.commands)
    if host.images_if_asked:
        title = f"of these {len(host.images_if_asked)} images, only those that a search needs:"
        yield ReportSection(title=title, blocks=(Items(lines=tuple(host.images_if_asked)),))


def _cells(plan: Explanation) -> str:
    """Return `18 cells to run` or `12 cells to run, 6 to search`."""
    run = plan.cells - plan.searched
    if not plan.searched:
        return f"{amounts.count(run, 'cell')} to run"
    searched = f"{amounts.count(plan.searched, 'cell')} to search"
    return f"{amounts.count(run, 'cell')} to run, {plan.searched} to search" if run else searched


def _cards(host: HostCost) -> str:
    """Return `; cards: RTX 3090, RTX 4090`; "" for a host without a GPU selection."""
    cards = [lane.removeprefix(f"{host.name}/") for lane in host.lanes if lane != host.name]
    return f"; cards: {', '.join(cards)}" if cards else ""


def _launches(cost: Explanation | HostCost) -> str:
    least, expected, most = cost.launches_least, cost.launches_expected, cost.launches_most
    if expected != least:
        return f"launches: at least {least}, about {expected} expected, at most {most}"
    return amounts.count(least, "launch") if least == most else f"{least} to {most} launches"
