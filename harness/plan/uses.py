"""Says what the launches of a plan use, before the first one starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.model import Plan, VersionRow, grouped


def uses(plan: Plan, processors: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each kind of launch: its engine and processor, its GPUs, its network, the files that are copied
    in, and its mounts. `processors`: the architecture of each host that is known, by name."""
    alike = grouped((_used(row, processors.get(row.lane.host.name, "")), row) for row in plan.rows)
    for used, rows in alike.items():
        scenarios = dict.fromkeys(row.variant.scenario.name for row in rows)
        lanes = dict.fromkeys(str(row.lane) for row in rows)
        where = f" of {', '.join(scenarios)} on {', '.join(lanes)}" if len(alike) > 1 else ""
        yield f"each launch{where}: {used}"


def _used(row: VersionRow, processor: str) -> str:
    scenario, can = row.variant.scenario, row.lane.host.can
    where = f"a container of {row.lane.host.engine} from each image"
    if can.makes_environments:
        where = "a process of this machine" if can.on_this_machine else f"engine {row.lane.host.engine}"
    card = "no GPU" if row.lane.gpu is None else f"GPU {row.lane.gpu}"
    network = "the machine's network" if can.sees_ports else "a network" if scenario.network else "no network"
    started = Path(scenario.where.file) if scenario.file is None else scenario.file
    home = (scenario.folder or started.parent).absolute()
    others = [path.absolute() for path in (scenario.client_script, *scenario.files) if path is not None]
    copied = ["its program"] if scenario.file is not None or scenario.module is not None else []
    copied += [str(path.relative_to(home) if path.is_relative_to(home) else path) for path in others]
    told = f"copied in: {', '.join(copied)}" if copied else "no file copied in"
    if row.cells[0].in_place:
        told = "in this folder, measured again if a file of it changes"
    mounted = [f"{each.source} at {each.at}" for each in scenario.data]
    mounted += [f"the {each.start} cache {each.name} at {each.at}" for each in scenario.caches]
    mounts = [f"mounted: {', '.join(mounted)}"] if mounted else []
    return ", ".join([f"{where} ({processor})" if processor else where, card, network, told, *mounts])
