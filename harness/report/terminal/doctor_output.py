"""Writes what `harness doctor` prints: hosts side by side, and images by GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness import amounts, exit_codes
from harness.model import Noise
from harness.model.answers import Checkup, HostCheck, HostCondition, ImageFit, Wanted
from harness.model.matrix import Gpu
from harness.report.terminal.run_report import console_text
from harness.report.text.names import some_of
from harness.report.text.signal_words import predicted_text

MOST_NAMES = 4
HOST_WIDTH, FIT_WIDTH, NAMES_WIDTH = 30, 24, 22
SIGNS = {"runs": "✓", "incompatible": "✗", "unknown": "?"}
STYLES = {"runs": "green", "incompatible": "red", "unknown": "yellow"}
METRICS = {"step_time": "step time", "peak_memory": "peak memory"}


def render(checkup: Checkup, console: Console) -> None:
    """Write the checkup to `console`, at its width and in its encoding, with as many hosts per table as fit."""
    for hosts in _groups(checkup.hosts, (console.width - 12) // HOST_WIDTH):
        console.print(_hosts_table(hosts, console))
        console.print()
    for host in checkup.hosts:
        for shown in host.predicted:
            console.print(console_text(f"{host.name}: {predicted_text(shown)}", console))
        if host.problem is not None:
            console.print(console_text(f"{host.name}: {host.problem}", console), style="red")
        if host.odd:
            console.print(console_text(f"{host.name}: {_odd(host)}", console), style="yellow")
        for line in _unknown(host):
            console.print(console_text(line, console), style="dim")
    reasons = list(dict.fromkeys(fit.why for fit in checkup.fits if fit.state != "runs"))
    places = list(dict.fromkeys(map(_place, checkup.fits)))
    for columns in _groups(places, (console.width - NAMES_WIDTH) // FIT_WIDTH):
        console.print()
        console.print(_fits_table([fit for fit in checkup.fits if _place(fit) in columns], reasons, console))
    for number, reason in enumerate(reasons, start=1):
        console.print(console_text(f"[{number}] {reason}", console))


# ---------------------------------------------------------------- hosts


def _hosts_table(hosts: Sequence[HostCheck], console: Console) -> Table:
    table = Table(box=None, pad_edge=False, expand=False, header_style="bold")
    table.add_column("", style="dim")
    for host in hosts:
        table.add_column(console_text(host.name, console), overflow="fold", max_width=3 * HOST_WIDTH)
    columns = [_facts(host) for host in hosts]
    for name in dict.fromkeys(name for facts in columns for name in facts):
        texts = ["\n".join(filter(None, facts.get(name, ()))) for facts in columns]
        if any(texts):
            table.add_row(name, *(_lines(text, console) for text in texts))
    return table


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
        free = (
            "not known" if room is None else f"{amounts.size(room.free_bytes)} free of {amounts.size(room.total_bytes)}"
        )
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
        yield f"{host.name}: size of {some_of(images, MOST_NAMES)} not known: {reason}"


def _spread(noise: Noise) -> str:
    told = [
        f"{title} ±{100 * noise.spread[metric]:.2g} %" for metric, title in METRICS.items() if metric in noise.spread
    ]
    return f"{', '.join(told)} ({amounts.count(max(noise.freedom.values(), default=0), 'pair')})"


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


def _fits_table(fits: Sequence[ImageFit], reasons: Sequence[str], console: Console) -> Table:
    table = Table(box=None, pad_edge=False, expand=False, header_style="bold")
    table.add_column("image", overflow="fold", max_width=60)
    places = list(dict.fromkeys(map(_place, fits)))
    for host, gpu in places:
        cards = len({fit.gpu for fit in fits if _place(fit) == (host, gpu)})
        name = host if gpu is None else f"{host} {gpu.short_name}{f' ×{cards}' if cards > 1 else ''}"
        table.add_column(console_text(name, console), overflow="fold", max_width=FIT_WIDTH + 8)
    by_image: dict[tuple[str, str], dict[tuple[str, Gpu | None], Text]] = {}
    for fit in fits:
        reason = "" if fit.state == "runs" else f" [{reasons.index(fit.why) + 1}]"
        size = "" if fit.bytes is None else f" {amounts.size(fit.bytes)}"
        where = f"present{size}" if fit.at_hand else f"to pull{size}" if size else "not present"
        text = f"{SIGNS[fit.state]} {fit.state}{reason}, {where}"
        by_image.setdefault((fit.series, fit.version), {})[_place(fit)] = console_text(text, console, STYLES[fit.state])
    for (series, version), row in by_image.items():
        cells = (row.get(place) or console_text("–", console) for place in places)
        table.add_row(console_text(f"{series} {version}", console), *cells)
    return table


# ---------------------------------------------------------------- text


def _groups(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), max(1, most)):
        yield items[start : start + max(1, most)]


def _lines(text: str, console: Console) -> Text:
    return Text("\n").join(console_text(line, console) for line in text.split("\n"))


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
            name: {"spread": dict(noise.spread), "pairs": dict(noise.freedom)} for name, noise in host.noise.items()
        },
        "predicted": [asdict(each) for each in host.predicted],
        "control_ms": host.control_ms,
        "odd": host.odd or None,
        "leftovers": list(found.leftovers),
    }
