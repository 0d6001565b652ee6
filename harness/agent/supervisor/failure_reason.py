"""Finds the reason why a command failed in the command's output. Pure."""

import re

LONGEST = 300
NEAR_THE_END = 10
HEADER = "Traceback (most recent call last)"
# Colours and other terminal sequences, and control characters.
ORDERS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)|[\x00-\x08\x0e-\x1f\x7f-\x9f]")


def last_words(text, step=None):
    """Return the last meaningful line, "" if there is none; after a traceback, the line that names the exception.

    `step` is a pattern: lines that match it are progress, not a reason.
    """
    lines = [ORDERS.sub("", line).rstrip() for line in re.split(r"[\r\n]+", text)]
    lines = [line for line in lines if line.strip() and not (step and step.search(line))]
    return (_exception(lines[-NEAR_THE_END:]) or (lines or [""])[-1]).strip()[:LONGEST]


def _exception(lines):
    """Return the first line after the frames of the last traceback; later lines continue the exception's text."""
    headers = [number for number, line in enumerate(lines) if HEADER in line]
    frames = lines[headers[-1] + 1 :] if headers else []
    return next((line for line in frames if not line[0].isspace()), "")
