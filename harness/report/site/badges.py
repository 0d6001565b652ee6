"""Draws a badge, a small SVG image with a name and a state, for a README."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from harness.report.text.harmless_text import shortened
from harness.report.text.signal_words import Tone

_COLOURS: dict[Tone, str] = {"bad": "#b42318", "good": "#1a6b3c", "unsure": "#8a5a00", "none": "#5c6570"}
_LETTER, _ROOM = 6.6, 12
_LONGEST = 40


def render(name: str, text: str, *, tone: Tone) -> str:
    """Return the badge as SVG, without scripts, style sheets or embedded fonts."""
    name, text = shortened(name, most=_LONGEST), shortened(text, most=_LONGEST)
    left, right = (round(len(part) * _LETTER) + _ROOM for part in (name, text))
    told = f"{name}: {text}"
    labels = "".join(
        f'<text x="{x:.1f}" y="14" text-anchor="middle" textLength="{width - _ROOM}">{escape(part)}</text>'
        for part, x, width in ((name, left / 2, left), (text, left + right / 2, right))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f"aria-label={quoteattr(told)}><title>{escape(told)}</title>"
        f'<rect width="{left}" height="20" fill="#40464d"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{_COLOURS[tone]}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{labels}</g></svg>\n'
    )
