"""Peak memory against throughput: a table, and a plot as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from harness.model import Setting
from harness.report.clean import plain

WIDTH, HEIGHT, MARGIN = 640, 400, 56


def table(settings: Sequence[Setting]) -> str:
    """A line for each setting, smallest first; * marks the frontier: nothing else is both smaller and faster."""
    width = max(len(each.name) for each in settings)
    rows = [
        f"{'*' if each.on_frontier else ' '} {each.name.ljust(width)}  {each.peak_mib:9.1f}  {each.items_a_s:9.1f}"
        for each in sorted(settings, key=lambda each: (each.peak_mib, -each.items_a_s))
    ]
    head = f"  {'setting'.ljust(width)}   peak MiB    items/s"
    return "\n".join([head, *map(_printable, rows)])


def _printable(line: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def svg(settings: Sequence[Setting]) -> str:
    """Peak from left to right, items a second from bottom to top, both from 0."""
    most_mib = 1.05 * max(each.peak_mib for each in settings)
    most_items = 1.05 * max(each.items_a_s for each in settings)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<path d="M{MARGIN} {MARGIN / 2}V{HEIGHT - MARGIN}H{WIDTH - MARGIN / 2}" fill="none" stroke="#888"/>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 16}" text-anchor="middle">peak memory, 0 to {most_mib:.0f} MiB</text>',
        f'<text transform="translate(20 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        f"items a second, 0 to {most_items:.0f}</text>",
        *_points(settings, most_mib, most_items),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _points(settings: Sequence[Setting], most_mib: float, most_items: float) -> Iterator[str]:
    for each in settings:
        x = MARGIN + each.peak_mib / most_mib * (WIDTH - 1.5 * MARGIN)
        y = HEIGHT - MARGIN - each.items_a_s / most_items * (HEIGHT - 1.5 * MARGIN)
        colour = "#c33" if each.on_frontier else "#aaa"
        name = escape(plain(each.name))
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"><title>{name}</title></circle>'
