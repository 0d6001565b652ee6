"""Writes what `harness doctor` prints: hosts side by side, and images by GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console

from harness import amounts, exit_codes
from harness.model import Noise
from harness.model.answers import Checkup, HostCheck, HostCondition, ImageFit, Wanted
from harness.model.matrix import Gpu
from harness.report.blocks import Box, Row, TextTable
from harness.report.terminal.block_printer import STYLES, Pen
from harness.report.text.names import some_of
from harness.report.text.signal_words import predicted_text

MOST_NAMES = 4
HOST_WIDTH, FIT_WIDTH, NAMES_WIDTH = 30, 24, 22
SIGNS = {"runs": ("✓", "good"), "incompatible": ("✗", "bad"), "unknown": ("?", "unsure")}
"""State of an image on a host -> its sign and tone."""
METRICS = {"step_time": "step time", "peak_memory": "peak memory"}


def render(checkup: Checkup, console: Console) -> None:
    """Write the checkup to `console`, at its width and in its encoding, with as many hosts per table as fit."""
    pen = Pen(console)
    for block in blocks(checkup, width=console.width):
        if isinstance(block, TextTable):
            pen.table(block)
        else:
            pen.line(block.text, style=STYLES[block.tone])


def blocks(checkup: Checkup, *, width: int) -> Iterator[TextTable | Box]:
    """Yield the tables and lines of a checkup, for a terminal of this width."""
    for hosts in _groups(checkup.hosts, (width - 12) // HOST_WIDTH):
        yield _hosts_table(hosts)
        yield Box(text="")
    for host in checkup.hosts:
        yield from (Box(text=f"{host.host.full_name}: {predicted_text(shown)}") for shown in host.predicted)
        if host.problem is not None:
            yield Box(text=f"{host.host.full_name}: {host.problem}", tone="bad")
        yield from (Box(text=f"{host.host.full_name}: {line}", tone="bad") for line in host.missing)
        if host.odd:
            yield Box(text=f"{host.host.full_name}: {_odd(host)}", tone="unsure")
        yield from (Box(text=line, tone="none") for line in _unknown(host))
    reasons = list(dict.fromkeys(fit.why for fit in checkup.fits if fit.state != "runs"))
    places = list(dict.fromkeys(map(_place, checkup.fits)))
    for columns in _groups(places, (width - NAMES_WIDTH) // FIT_WIDTH):
        yield Box(text="")
        yield _fits_table([fit for fit in checkup.fits if _place(fit) in columns], reasons)
    yield from (Box(text=f"[{number}] {reason}") for number, reason in enumerate(reasons, start=1))


# ---------------------------------------------------------------- hosts


def _hosts_table(hosts: Sequence[HostCheck]) -> TextTable:
    columns = [_facts(host) for host in hosts]
    names = dict.fromkeys(name for facts in columns for name in facts)
    texts = {name: ["\n".join(filter(None, facts.get(name, ()))) for facts in columns] for name in names}
    rows: tuple[Row, ...] = tuple((Box(text=name, tone="none"), *told) for name, told in texts.items() if any(told))
    return TextTable(columns=("", *(host.host.full_name for host in hosts)), rows=rows, widest=3 * HOST_WIDTH)


def _facts(host: HostCheck) -> dict[str, Sequence[str]]:
    """Return what is known of a host: the lines of each row of the table."""
    found, is_usable, no_gpus = host.condition, host.problem is None, host.host.gpus == "none"
    side_by_side = host.host.parallel is True and len(host.lanes) > 1
    noise = [f"{name}: {_spread(noise)}" for name, noise in host.noise.items()]
    facts: dict[str, Sequence[str]] = {
        "": ["can be used" if is_usable else "cannot be used (see below)"],
        "engine": [host.host.engine],
        "GPUs": ["none requested"] if no_gpus else [*map(_gpu, host.gpus)],
        "lanes": [*map(str, host.lanes), "side by side (parallel)" if side_by_side else ""] if is_usable else [],
    }
    if found is not None:
        api = f", API {found.api}" if found.api else ""
        facts["engine"] = list(dict.fromkeys([host.host.engine, f"{found.engine}{api}"]))
        if host.gpus and found.gpu_way and not no_gpus:
            facts["GPUs"] = [*facts["GPUs"], f"given by {found.gpu_way}"]
        room, limit_bytes, memory = found.room, host.host.disk_bytes, found.memory_limit_bytes
        free = "" if room is None else f"{amounts.size(room.free_bytes)} free of {amounts.size(room.total_bytes)}"
        facts |= {
            "lease": [found.holder or "free"],
            "disk space": [
                free or "not known",
                f"disk: {amounts.size(limit_bytes)}" if limit_bytes else "",
                "" if found.kept_bytes is None else f"{amounts.size(found.kept_bytes)} used by harness",
            ],
            "memory": ["no limit" if memory is None else f"{amounts.size(memory)} per launch"],
        }
    left = 0 if found is None else len(found.leftovers)
    return facts | {
        "images": [] if host.wanted is None else _images(host, host.wanted),
        "noise": noise or ["not measured yet" if is_usable else ""],
        "control": [_control(host)],
        "leftovers": [] if found is None else [f"{left}: `harness clean` removes them" if left else "none"],
    }


def _gpu(gpu: Gpu) -> str:
    driver = [f"driver {gpu.driver}" if gpu.driver else "", f"CUDA {gpu.cuda}" if gpu.cuda else ""]
    state = [
        f"{amounts.number(gpu.power_limit_w)} W" if gpu.power_limit_w else "",
        "" if gpu.ecc is None else f"ECC {'on' if gpu.ecc else 'off'}",
        "" if gpu.processes is None else f"{gpu.processes or 'no'} other processes",
    ]
    code = f" sm_{gpu.compute_capability.replace('.', '')}" if gpu.compute_capability else ""
    joined = [", ".join(filter(None, parts)) for parts in (driver, state)]
    return "\n".join(filter(None, [f"{gpu.short_name}{code}", gpu.uuid, *joined]))


def _images(host: HostCheck, wanted: Wanted) -> Sequence[str]:
    condition, limit_bytes = host.condition, host.host.disk_bytes
    is_short = condition is not None and (
        (condition.room is not None and wanted.unpacked_bytes > condition.room.free_bytes)
        or (limit_bytes is not None and wanted.unpacked_bytes + (condition.kept_bytes or 0) > limit_bytes)
    )
    unpacked = amounts.size(wanted.unpacked_bytes)
    return [
        f"{wanted.images - wanted.missing} of {wanted.images} present",
        f"to pull: {amounts.size(wanted.missing_bytes)}, unpacked about {unpacked}" if wanted.missing_bytes else "",
        f"size of {len(wanted.unknown)} not known" if wanted.unknown else "",
        "NOT ENOUGH SPACE" if is_short else "",
    ]


def _unknown(host: HostCheck) -> Iterator[str]:
    """Yield `old: size of ngc 20.12 and ngc 22.12 not known: nvcr.io cannot be reached`."""
    unknown = host.wanted.unknown if host.wanted is not None else {}
    for reason in dict.fromkeys(unknown.values()):
        images = [image for image, why in unknown.items() if why == reason]
        yield f"{host.host.full_name}: size of {some_of(images, MOST_NAMES)} not known: {reason}"


def _spread(noise: Noise) -> str:
    told = [f"{title} ±{100 * noise[metric].deviation:.2g} %" for metric, title in METRICS.items() if metric in noise]
    return f"{', '.join(told)} ({amounts.count(max((each.freedom for each in noise.values()), default=0), 'pair')})"


def _control(host: HostCheck) -> str:
    return "" if host.control_ms is None else amounts.in_unit(host.control_ms, "ms/step")


def _odd(host: HostCheck) -> str:
    """Return how a machine's control launch differs from the pool's, or why that is not known."""
    if host.control_ms is None:
        return host.odd
    return f"the control takes {_control(host)}, {host.odd}; check its other processes, its cooling and power settings"


# ---------------------------------------------------------------- images


def _place(fit: ImageFit) -> tuple[str, Gpu | None]:
    """Return the column of a fit: the host and the kind of card, so that identical cards share a column."""
    kind = None if fit.gpu is None else replace(fit.gpu, uuid="", index=0, processes=None, parent=None)
    return fit.host, kind


def _fits_table(fits: Sequence[ImageFit], reasons: Sequence[str]) -> TextTable:
    places = list(dict.fromkeys(map(_place, fits)))
    names = []
    for host, gpu in places:
        cards = len({fit.gpu for fit in fits if _place(fit) == (host, gpu)})
        names.append(host if gpu is None else f"{host} {gpu.short_name}{f' ×{cards}' if cards > 1 else ''}")
    by_image: dict[str, dict[tuple[str, Gpu | None], Box]] = {}
    for fit in fits:
        reason = "" if fit.state == "runs" else f" [{reasons.index(fit.why) + 1}]"
        size = "" if fit.bytes is None else f" {amounts.size(fit.bytes)}"
        where = f"present{size}" if fit.at_hand else f"to pull{size}" if size else "not present"
        sign, tone = SIGNS[fit.state]
        box = Box(text=f"{sign} {fit.state}{reason}, {where}", tone=tone)
        by_image.setdefault(f"{fit.series} {fit.version}", {})[_place(fit)] = box
    rows = tuple((image, *(row.get(place, "–") for place in places)) for image, row in by_image.items())
    return TextTable(columns=("image", *names), rows=rows, widest=FIT_WIDTH + 8)


def _groups(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), max(1, most)):
        yield items[start : start + max(1, most)]


# ---------------------------------------------------------------- doctor json


SCHEMA = 1


def to_json(checkup: Checkup) -> dict[str, Any]:
    """Return the checkup as JSON-ready data. Every field is always present; unknown values are None."""
    return {
        "schema": SCHEMA,
        "matrix": checkup.matrix,
        "exit_code": exit_code(checkup),
        "hosts": [_host_json(host) for host in checkup.hosts],
        "images": [
            {
                **{name: getattr(fit, name) for name in ("host", "series", "state", "why", "at_hand", "bytes")},
                "gpu": None if fit.gpu is None else fit.gpu.uuid,
                "image": fit.version,
            }
            for fit in checkup.fits
        ],
    }


def exit_code(checkup: Checkup) -> int:
    return exit_codes.UNAVAILABLE if checkup.problems else exit_codes.OK


def _host_json(host: HostCheck) -> dict[str, Any]:
    found = host.condition or HostCondition(engine="")
    return {
        "name": host.host.name,
        "machine": host.host.machine or None,
        "engine": host.host.engine,
        "problem": host.problem,
        "version": found.engine or None,
        "api": found.api,
        "gpu_way": found.gpu_way,
        "gpus": [asdict(gpu) for gpu in host.gpus],
        "lanes": [str(lane) for lane in host.lanes] if host.problem is None else [],
        "lease": found.holder,
        "room": asdict(found.room) if found.room else None,
        "disk_bytes": host.host.disk_bytes,
        "kept_bytes": found.kept_bytes,
        "memory_limit_bytes": found.memory_limit_bytes,
        "images": asdict(host.wanted) if host.wanted else None,
        "noise": {
            name: {
                "spread": {metric: spread.deviation for metric, spread in noise.items()},
                "pairs": {metric: spread.freedom for metric, spread in noise.items()},
            }
            for name, noise in host.noise.items()
        },
        "predicted": [asdict(each) for each in host.predicted],
        "control_ms": host.control_ms,
        "odd": host.odd or None,
        "missing": list(host.missing),
        "leftovers": list(found.leftovers),
    }
