"""Why a command failed, out of what it printed. Pure."""

import re

LONGEST = 300
NEAR_THE_END = 10
HEADER = "Traceback (most recent call last)"
# Colours and other orders to a terminal, and control characters.
ORDERS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)|[\x00-\x08\x0e-\x1f\x7f-\x9f]")


def last_words(text, step=None):
    """The last line that says something, "" if none does; after a traceback the line that names the exception.

    `step` is a pattern: lines that it matches are progress, and no reason.
    """
    lines = [ORDERS.sub("", line).rstrip() for line in re.split(r"[\r\n]+", text)]
    lines = [line for line in lines if line.strip() and not (step and step.search(line))]
    return (_exception(lines[-NEAR_THE_END:]) or (lines or [""])[-1]).strip()[:LONGEST]


def _exception(lines):
    """The first line after the frames of the last traceback: what follows it are more lines of the exception's text."""
    headers = [number for number, line in enumerate(lines) if HEADER in line]
    frames = lines[headers[-1] + 1 :] if headers else []
    return next((line for line in frames if not line[0].isspace()), "")
