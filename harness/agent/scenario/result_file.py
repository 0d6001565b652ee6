"""Reads the numbers of a file that a command writes: JSON, JSON lines, or CSV with a header.

In JSON, a number is named by the keys that lead to it: `{"read": {"iops": 5}}` has `read.iops`. A list is a series, and
so are JSON lines: of each name, the last value counts. If all values of a list are objects with different strings under
`name`, these are keys: `{"runs": [{"name": "a", "ms": 1}]}` has `runs.a.ms`. In CSV, the last line counts, and a number
is named by its column; lines of two columns such as `loss,0.3` are names and numbers.
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


def read(path, before=None, lists=True):
    """Return name -> number, in the order of the file. `before`: its state before the run; `lists`: whether a list is a
    series; if so, a file without numbers is an error, too. Raises ValueError, with what is wrong."""
    if state(path) in (None, before):
        raise ValueError("was not written")
    if not os.path.isfile(path):  # a pipe would be waited for
        raise ValueError("is no file")
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ValueError("is larger than %d MiB" % (MOST_BYTES >> 20))
        if path.endswith(".csv"):
            numbers = _of_csv(list(csv.reader(text.splitlines())))
        else:
            last = dict(pair for row in _of_json(text) for pair in numbers_of(row, lists=lists))
            numbers = {name: number for name, number in last.items() if number is not None}
    except OSError as error:
        raise ValueError(os.strerror(error.errno))
    except csv.Error as error:  # a field may have 128 KiB
        raise ValueError(str(error))
    except RecursionError:
        raise ValueError("is nested too deeply")
    if lists and not numbers:
        raise ValueError("has no numbers")
    return numbers


def _of_json(text):
    """Return the values of JSON, which is one, or of JSON lines."""
    try:
        return [json.loads(text)]
    except ValueError as error:
        rows = []
        for number, line in enumerate(text.split("\n"), 1):
            try:
                rows += [json.loads(line)] if line.strip() else []
            except ValueError:
                raise ValueError("line %d is no JSON" % number) if rows else error
        return rows


def numbers_of(value, name="", lists=False):
    """Yield (name, number) for each number of a JSON value, in order, and (name, None) for a null, after which the
    number before it does not count. `lists`: also those of lists, of which the last one counts."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_of(inner, "%s.%s" % (name, key) if name else str(key), lists)
    elif isinstance(value, list) and lists:
        names = [inner.get("name") if isinstance(inner, dict) else None for inner in value]
        if all(isinstance(each, str) for each in names) and len(set(names)) == len(names):
            yield from numbers_of(dict(zip(names, value)), name, lists)  # noqa: B905 (Python 3.6)
            return
        for inner in value[-1:] if value and not isinstance(value[-1], dict) else value:
            if not isinstance(inner, list):  # no matrix is a series
                yield from numbers_of(inner, name, lists)
    elif name and (value is None or isinstance(value, (int, float))) and not isinstance(value, bool):
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
