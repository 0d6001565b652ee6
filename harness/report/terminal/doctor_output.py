"""Writes what `harness doctor` prints: hosts side by side, and images by GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from harness.report.text.harmless_text import spelled
from harness.report.text.names import some_of

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
    for name, value in ROWS.items():
        texts = [value(host) for host in hosts]
        if any(texts):
            table.add_row(name, *(_lines(text, console) for text in texts))
    return table


def _state(host: HostCheck) -> str:
    return "can be used" if host.problem is None else "cannot be used (see below)"


def _engine(host: HostCheck) -> str:
    found = host.condition
    if found is None:
        return host.host.engine
    return f"{host.host.engine}\n{found.engine}{f', API {found.api}' if found.api else ''}"


def _gpus(host: HostCheck) -> str:
    if host.host.gpus == "none":
        return "none requested"
    way = host.condition.gpu_way if host.condition is not None and host.gpus else None
    return "\n".join([*map(_gpu, host.gpus), *([f"given by {way}"] if way else [])])


def _gpu(gpu: Gpu) -> str:
    driver = [f"driver {gpu.driver}" if gpu.driver else "", f"CUDA {gpu.cuda}" if gpu.cuda else ""]
    state = [
        f"{amounts.number(gpu.power_limit_w)} W" if gpu.power_limit_w else "",
        "" if gpu.ecc is None else f"ECC {'on' if gpu.ecc else 'off'}",
        "" if gpu.processes is None else f"{gpu.processes or 'no'} other processes",
    ]
    code = f" sm_{gpu.compute_capability.replace('.', '')}" if gpu.compute_capability else ""
    return "\n".join(filter(None, [f"{gpu.short_name}{code}", gpu.uuid, _joined(driver), _joined(state)]))


def _joined(parts: Sequence[str]) -> str:
    return ", ".join(filter(None, parts))


def _lanes(host: HostCheck) -> str:
    side_by_side = "\nside by side (parallel)" if host.host.parallel is True and len(host.lanes) > 1 else ""
    return "\n".join(map(str, host.lanes)) + side_by_side if host.problem is None else ""


def _room(host: HostCheck) -> str:
    if host.condition is None:
        return ""
    room, limit = host.condition.room, host.host.disk_bytes
    free = "not known" if room is None else f"{amounts.size(room.free_bytes)} free of {amounts.size(room.total_bytes)}"
    kept = host.condition.kept_bytes
    used = [] if kept is None else [f"{amounts.size(kept)} used by harness"]
    return "\n".join([free, *([f"disk: {amounts.size(limit)}"] if limit else []), *used])


def _memory(host: HostCheck) -> str:
    """Return the memory limit of a launch for which the matrix gives none."""
    if host.condition is None:
        return ""
    limit_bytes = host.condition.memory_limit_bytes
    return "no limit" if limit_bytes is None else f"{amounts.size(limit_bytes)} per launch"


def _images(host: HostCheck) -> str:
    wanted = host.wanted
    if wanted is None:
        return ""
    lines = [f"{wanted.images - wanted.missing} of {wanted.images} present"]
    if wanted.missing_bytes:
        unpacked = amounts.size(wanted.unpacked_bytes)
        lines.append(f"to pull: {amounts.size(wanted.missing_bytes)}, unpacked about {unpacked}")
    if wanted.unknown:
        lines.append(f"size of {len(wanted.unknown)} not known")
    return "\n".join([*lines, *(["NOT ENOUGH SPACE"] if _is_short(host, wanted) else [])])


def _unknown(host: HostCheck) -> Iterator[str]:
    """Yield `old: size of ngc 20.12 and ngc 22.12 not known: nvcr.io cannot be reached`."""
    unknown = host.wanted.unknown if host.wanted is not None else {}
    for reason in dict.fromkeys(unknown.values()):
        images = [image for image, why in unknown.items() if why == reason]
        yield f"{host.name}: size of {some_of(images, MOST_NAMES)} not known: {reason}"


def _is_short(host: HostCheck, wanted: Wanted) -> bool:
    condition, limit = host.condition, host.host.disk_bytes
    if condition is None:
        return False
    is_full = condition.room is not None and wanted.unpacked_bytes > condition.room.free_bytes
    return is_full or (limit is not None and wanted.unpacked_bytes + (condition.kept_bytes or 0) > limit)


def _noise(host: HostCheck) -> str:
    if not host.noise:
        return "" if host.problem else "not measured yet"
    return "\n".join(f"{name}: {_spread(noise)}" for name, noise in host.noise.items())


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


def _leftovers(host: HostCheck) -> str:
    if host.condition is None:
        return ""
    count = len(host.condition.leftovers)
    return f"{count}: `harness clean` removes them" if count else "none"


ROWS: dict[str, Callable[[HostCheck], str]] = {
    "": _state,
    "engine": _engine,
    "GPUs": _gpus,
    "lanes": _lanes,
    "lease": lambda host: "" if host.condition is None else host.condition.holder or "free",
    "disk space": _room,
    "memory": _memory,
    "images": _images,
    "noise": _noise,
    "control": _control,
    "leftovers": _leftovers,
}


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
    by_image: dict[tuple[str, str], dict[tuple[str, Gpu | None], ImageFit]] = {}
    for fit in fits:
        by_image.setdefault((fit.series, fit.version), {})[_place(fit)] = fit
    for (series, version), row in by_image.items():
        cells = [_fit(row.get(place), reasons, console) for place in places]
        table.add_row(console_text(f"{series} {version}", console), *cells)
    return table


def _fit(fit: ImageFit | None, reasons: Sequence[str], console: Console) -> Text:
    if fit is None:
        return console_text("–", console)
    reason = "" if fit.state == "runs" else f" [{reasons.index(fit.why) + 1}]"
    text = f"{SIGNS[fit.state]} {fit.state}{reason}, {_where(fit)}"
    return Text(spelled(text, encoding=console.encoding), style=STYLES[fit.state])


def _where(fit: ImageFit) -> str:
    size = "" if fit.bytes is None else f" {amounts.size(fit.bytes)}"
    return f"present{size}" if fit.at_hand else f"to pull{size}" if size else "not present"


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
        "images": [_fit_json(fit) for fit in checkup.fits],
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
        "control_ms": host.control_ms,
        "odd": host.odd or None,
        "leftovers": list(found.leftovers),
    }


def _fit_json(fit: ImageFit) -> dict[str, Any]:
    return {
        **{name: getattr(fit, name) for name in ("host", "series", "state", "why", "at_hand", "bytes")},
        "gpu": None if fit.gpu is None else fit.gpu.uuid,
        "image": fit.version,
    }
