"""Computes what a plan would do and what it can cost, in numbers, for `--dry-run`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from harness import private
from harness.model import Block, Build, Cell, Explanation, Host, HostCost, Image, Plan, Pull

if TYPE_CHECKING:
    from harness.schedule.bisect import Expected


def explain(plan: Plan) -> Explanation:
    """Return what the plan would do: cells, launches and worst-case duration, in total and by host."""
    hosts = list(dict.fromkeys(block.lane.host for block in plan.blocks))
    costs = tuple(_host_cost(host, plan) for host in hosts)
    left_out = [cell for cell in plan.cells if cell.excluded]
    return Explanation(
        matrix=plan.matrix.name,
        seed=plan.seed,
        cells=sum(cost.cells for cost in costs),
        searched=sum(cell.excluded is None for block in plan.blocks if plan.searched(block) for cell in block.cells),
        excluded=len(left_out),
        search=plan.search,
        launches_least=sum(cost.launches_least for cost in costs),
        launches_expected=sum(cost.launches_expected for cost in costs),
        launches_most=sum(cost.launches_most for cost in costs),
        worst_s=max(cost.worst_s for cost in costs),
        hosts=costs,
        left_out=tuple(_left_out(left_out)),
    )


def most_launches(plan: Plan, only: Collection[str] | None = None) -> dict[str, int]:
    """Return the largest number of launches by lane; `only`: of these cells (ids). A/A replicates are not counted."""
    found = {str(block.lane): 0 for block in plan.blocks}
    for block in plan.blocks:
        if only is None:
            found[str(block.lane)] += _expected(block, plan).most
        else:
            found[str(block.lane)] += plan.trials.most * sum(cell.id in only for cell in block.cells)
    return found


def typical_launches(plan: Plan) -> dict[str, int]:
    """Return the number of launches by lane if every result is clear at once. A/A replicates are not counted."""
    found = {str(block.lane): 0 for block in plan.blocks}
    for block in plan.blocks:
        found[str(block.lane)] += round(_expected(block, plan).typical)
    return found


def _host_cost(host: Host, plan: Plan) -> HostCost:
    blocks = [block for block in plan.blocks if block.lane.host == host]
    cells = [cell for block in blocks for cell in block.cells if not cell.excluded]
    expected = {block.cells[0].id: _expected(block, plan) for block in blocks}
    by_lane: dict[str, float] = {str(block.lane): 0.0 for block in blocks}
    for block in blocks:
        timeout_s = block.variant.scenario.timeout_s
        by_lane[str(block.lane)] += timeout_s * expected[block.cells[0].id].typical
    sure = _images([block for block in blocks if not plan.searched(block)])
    asked = [image for image in _images(blocks) if image not in sure]
    return HostCost(
        name=host.name,
        engine=host.engine,
        lanes=tuple(by_lane),
        cells=len(cells),
        launches_least=sum(each.least for each in expected.values()),
        launches_expected=sum(each.typical for each in expected.values()),
        launches_most=sum(each.most for each in expected.values()),
        images=tuple(_told(image, host) for image in sure),
        images_if_asked=tuple(_told(image, host) for image in asked),
        worst_s=max(by_lane.values()) if host.parallel is True else sum(by_lane.values()),
    )


def _images(blocks: Sequence[Block]) -> list[Image]:
    return list(dict.fromkeys(cell.image for block in blocks for cell in block.cells if not cell.excluded))


def _told(image: Image, host: Host) -> str:
    return f"{image.series} {image.version}: {_source_text(image, process=host.in_environments)}"


def _expected(block: Block, plan: Plan) -> Expected:
    """Return the launches of a block, without the A/A replicate that is launched in each round."""
    from harness.schedule.bisect import Expected, Rules, expected_launches  # noqa: PLC0415 - a watch plans, and needs no statistics

    cells = sum(cell.excluded is None for cell in block.cells)
    if plan.searched(block):
        return expected_launches(cells, rules=Rules(least=plan.trials.least, most=plan.trials.most))
    least = cells * plan.trials.least
    return Expected(least=least, typical=least, most=cells * plan.trials.most)


def _left_out(cells: Sequence[Cell]) -> list[str]:
    """Return one line for each reason, with the number of cells."""
    whys = [f"{cell.image.series} on {cell.lane}: {cell.excluded.why}" for cell in cells if cell.excluded]
    return [f"{whys.count(why)} × {why}" for why in dict.fromkeys(whys)]


def _source_text(image: Image, *, process: bool = False) -> str:
    """Return in a few words how an image is had; `process`: on a host without containers."""
    mark = " (yanked)" if image.yanked else ""
    if isinstance(image.source, Pull):
        return f"pull {image.source.reference}{mark}"
    if isinstance(image.source, Build):
        args = " ".join(f"{name}={value}" for name, value in private.told(image.source.args).items())
        return f"build {image.source.context} with {args}{mark}"
    python = f"Python {image.source.python}" if image.source.python else "the running Python"
    onto = f"in a virtual environment of {python}" if process else f"over {image.source.base}"
    return f"install {private.without_credentials(' '.join(image.source.packages))} {onto}{mark}"
