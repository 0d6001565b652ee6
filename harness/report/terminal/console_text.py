"""Prepares text for a console: cleaned, in the console's encoding, and never interpreted as markup."""

from __future__ import annotations

from rich.console import Console
from rich.style import Style
from rich.text import Text

from harness.report.text.harmless_text import plain, spelled


def console_text(text: str, console: Console, style: str | Style = "") -> Text:
    """Return one line of text. Characters that the console cannot write are replaced by ASCII spellings."""
    return Text(spelled(plain(text), encoding=console.encoding), style=style)
