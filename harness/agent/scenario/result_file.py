"""Reads the numbers of a file that a command writes: JSON, JSON lines, or CSV with a header.

In JSON, a number is named by the keys that lead to it: `{"read": {"iops": 5}}` has `read.iops`. A list is a series, and
so are JSON lines: of each name, the last value counts. In CSV, the last line counts, and a number is named by its
column; lines of two columns such as `loss,0.3` are names and numbers.
"""

import csv
import json
import os

MOST_BYTES = 1 << 20


def state(path):
    """Return what changes when the file is written; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def read(path):
    """Return name -> number, in the order of the file. Raises ValueError, with what is wrong."""
    if not os.path.isfile(path):  # a pipe would be waited for
        raise ValueError("is no file")
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(os.strerror(error.errno))
    if len(text) > MOST_BYTES:
        raise ValueError("is larger than %d MiB" % (MOST_BYTES >> 20))
    if path.endswith(".csv"):
        try:
            return _of_csv(list(csv.reader(text.splitlines())))
        except csv.Error as error:  # a field may have 128 KiB
            raise ValueError(str(error))
    try:
        last = dict(numbers_of(_of_json(text), series=True))
    except RecursionError:
        raise ValueError("is nested too deeply")
    return {name: number for name, number in last.items() if number is not None}


def _of_json(text):
    """Return the value, or a list of those of JSON lines."""
    try:
        return json.loads(text)
    except ValueError as error:
        rows = []
        for number, line in enumerate(text.split("\n"), 1):
            try:
                rows += [json.loads(line)] if line.strip() else []
            except ValueError:
                raise ValueError("line %d is no JSON" % number) if rows else error
        return rows


def numbers_of(value, name="", series=False):
    """Yield (name, number) for each number of a JSON value, in order. `series`: also for those of lists, whose last one
    counts, and (name, None) for a null, after which the numbers before it do not count."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_of(inner, "%s.%s" % (name, key) if name else str(key), series)
    elif isinstance(value, list) and series:
        for inner in value[-1:] if value and not isinstance(value[-1], dict) else value:
            if not isinstance(inner, list):  # no matrix is a series
                yield from numbers_of(inner, name, series)
    elif name and (isinstance(value, (int, float)) or (value is None and series)) and not isinstance(value, bool):
        yield name, value


def _of_csv(rows):
    rows = [row for row in rows if row]
    is_pairs = all(len(row) == 2 and _number(row[0]) is None for row in rows)
    pairs = rows if is_pairs else zip(rows[0], rows[-1])  # noqa: B905 (Python 3.6)
    numbers = [(name.strip(), _number(text)) for name, text in pairs]
    return {name: number for name, number in numbers if name and number is not None}


def _number(text):
    try:
        return float(text)
    except ValueError:
        return None
