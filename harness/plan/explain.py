"""Computes the workload and the possible cost of a plan, for `--dry-run`."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Collection
from functools import partial

from harness import masking
from harness.judge.next.bisect_records import Expected, Rules, expected_launches
from harness.model import Build, Cell, Explanation, Host, HostCost, Image, Install, Plan, Pull, VersionRow


def explain(plan: Plan) -> Explanation:
    """Return what the plan would do: cells, launches and worst-case duration, in total and by host."""
    hosts = list(dict.fromkeys(row.lane.host for row in plan.rows))
    costs = tuple(_host_cost(host, plan) for host in hosts)
    excluded = [f"{cell.image.series} on {cell.lane}: {cell.excluded}" for cell in plan.cells if cell.excluded]
    return Explanation(
        matrix=plan.matrix.name,
        seed=plan.seed,
        cells=sum(cost.cells for cost in costs),
        searched=sum(cell.excluded is None for row in plan.rows if plan.searched(row) for cell in row.cells),
        excluded=len(excluded),
        search=plan.search,
        launches_least=sum(cost.launches_least for cost in costs),
        launches_expected=sum(cost.launches_expected for cost in costs),
        launches_most=sum(cost.launches_most for cost in costs),
        worst_s=max(cost.worst_s for cost in costs),
        hosts=costs,
        left_out=tuple(f"{count} × {why}" for why, count in Counter(excluded).items()),
    )


def most_launches(plan: Plan, only: Collection[str] | None = None) -> dict[str, int]:
    """Return the maximum number of launches by lane, without A/A replicates; `only`: count only these cells (ids)."""
    by_lane: Counter[str] = Counter()
    for row in plan.rows:
        chosen = 0 if only is None else sum(cell.id in only for cell in row.cells)
        by_lane[str(row.lane)] += _expected(row, plan).most if only is None else plan.trials.most * chosen
    return by_lane


def typical_launches(plan: Plan) -> dict[str, int]:
    """Return the number of launches by lane, without A/A replicates, if every result is clear."""
    by_lane: Counter[str] = Counter()
    for row in plan.rows:
        by_lane[str(row.lane)] += round(_expected(row, plan).typical)
    return by_lane


def _host_cost(host: Host, plan: Plan) -> HostCost:
    rows = [row for row in plan.rows if row.lane.host == host]
    launches = [_expected(row, plan) for row in rows]
    worst_s = {str(row.lane): 0.0 for row in rows}
    for row, expected in zip(rows, launches, strict=True):
        worst_s[str(row.lane)] += row.variant.scenario.timeout_s * expected.typical
    cells = [cell for row in rows for cell in row.cells if not cell.excluded]
    certain, possible = (
        list(dict.fromkeys(each.image for row in some for each in row.cells if not (each.excluded or each.in_place)))
        for some in ([row for row in rows if not plan.searched(row)], rows)
    )
    return HostCost(
        name=host.name,
        engine=host.engine,
        lanes=tuple(worst_s),
        cells=len(cells),
        launches_least=sum(expected.least for expected in launches),
        launches_expected=sum(expected.typical for expected in launches),
        launches_most=sum(expected.most for expected in launches),
        images=tuple(_source_text(image, host) for image in certain),
        images_if_asked=tuple(_source_text(image, host) for image in possible if image not in certain),
        commands=tuple(dict.fromkeys(map(typed, (cell for cell in cells if cell.in_place)))),
        fills=sum(map(partial(_fills, plan=plan), rows)),
        worst_s=max(worst_s.values()) if host.parallel is True else sum(worst_s.values()),
    )


def _expected(row: VersionRow, plan: Plan) -> Expected:
    """Return the launches of a row, without the A/A replicate of each round."""
    cells = sum(cell.excluded is None for cell in row.cells)
    if plan.searched(row):
        return expected_launches(cells, rules=Rules(least=plan.trials.least, most=plan.trials.most))
    least = cells * plan.trials.least
    return Expected(least=least, typical=least, most=cells * plan.trials.most)


def _fills(row: VersionRow, *, plan: Plan) -> int:
    """Return how many versions of a row are expected to be launched, each of which fills its warm caches once. A search
    launches both ends, and halves what is between them."""
    cells = sum(cell.excluded is None for cell in row.cells)
    if not any(cache.is_warm for cache in row.variant.scenario.caches):
        return 0
    return min(cells, 2 + math.ceil(math.log2(cells))) if plan.searched(row) and cells else cells


def typed(cell: Cell) -> str:
    """Return the command of a cell as a shell takes it, with the variables that the matrix file sets before it."""
    variables = (f"{name}={shlex.quote(value)}" for name, value in masking.told(cell.environment.items()).items())
    return " ".join([*variables, shlex.join(cell.launched.command)])


def _source_text(image: Image, host: Host) -> str:
    """Return the name of an image and a short description of how the host gets it."""
    mark = " (yanked)" if image.yanked else ""
    name, source = f"{image.series} {image.version}", image.source
    if isinstance(source, Pull):
        return f"{name}: pull {source.reference}{mark}"
    if isinstance(source, Build):
        args = " ".join(f"{arg}={value}" for arg, value in masking.told(source.args).items())
        return f"{name}: build {source.context} with {args}{mark}"
    assert isinstance(source, Install), "nothing is prepared for a command that runs in place"
    packages = masking.without_credentials(" ".join(source.packages))
    if not host.can.makes_environments:
        return f"{name}: install {packages} over {source.base}{mark}"
    python = f"Python {source.python}" if source.python else "the running Python"
    return f"{name}: install {packages} in a virtual environment of {python}{mark}"
