"""Runs the scenario, or a command, under valgrind's memcheck and reads the leak records that it leaves.

Python's own allocator is switched off (PYTHONMALLOC=malloc), because it would hide every block from valgrind. For a
command, child processes are included, because the command may be a shell or a launcher.
"""

import json
import os
import re
import shutil
import xml.etree.ElementTree

from ..ending import Missing

OPTIONS = (
    "--tool=memcheck", "--leak-check=full", "--show-leak-kinds=all", "--num-callers=40", "--read-inline-info=no",
    "--error-limit=no", "--xml=yes", "--child-silent-after-fork=yes",
)  # fmt: skip
MOST_RECORDS = 2000
REPORT = re.compile(r"valgrind\.\S+\.xml$")


class Valgrind(object):
    """One run: `command(...)` returns the command to start instead, in `environment`; `files()` is called after it."""

    after_end_s = 600.0  # valgrind searches the whole memory for pointers when the process ends

    def __init__(self, folder, whole_tree=False):
        self.environment = {"PYTHONMALLOC": "malloc"}
        self._folder = folder
        self._children = "--trace-children=%s" % ("yes" if whole_tree else "no")

    def command(self, command):
        """Return the command that runs `command` under valgrind. Raises Missing."""
        program = shutil.which("valgrind")
        if program is None:
            raise Missing("valgrind: not in this image; install Debian's package valgrind in the image's Dockerfile")
        report = os.path.join(self._folder, "valgrind.%p.xml")  # %p: the process
        return [program, *OPTIONS, self._children, "--xml-file=" + report, *command]

    def files(self):
        """Return name -> text; {} if valgrind left no report."""
        names = [name for name in sorted(os.listdir(self._folder)) if REPORT.match(name)]
        if not names:
            return {}
        records, errors, complete = read_reports([os.path.join(self._folder, name) for name in names])
        report = {
            "records": records[:MOST_RECORDS],
            "left_out": len(records[MOST_RECORDS:]),
            "errors": errors,
            "complete": complete,
        }
        return {"valgrind.json": json.dumps(report)}


def read_reports(paths):
    """Return (leak records, most bytes first; counts of other errors by kind; whether all reports are complete)."""
    records, errors, complete = [], {}, True
    for path in paths:
        try:
            _read(path, records, errors)
        except xml.etree.ElementTree.ParseError:  # the process was killed while valgrind wrote
            complete = False
    records.sort(key=lambda record: (-record["bytes"], record["stack"]))
    return records, errors, complete


def _read(path, records, errors):
    for _, element in xml.etree.ElementTree.iterparse(path):
        if element.tag != "error":
            continue
        kind = element.findtext("kind")
        if kind.startswith("Leak_"):
            records.append(_record(kind, element))
        else:
            errors[kind] = errors.get(kind, 0) + 1
        element.clear()


def _record(kind, element):
    return {
        "kind": kind[len("Leak_") :],
        "bytes": int(element.findtext("xwhat/leakedbytes")),
        "blocks": int(element.findtext("xwhat/leakedblocks")),
        "stack": [_place(frame) for frame in element.findall("stack/frame")],
    }


def _place(frame):
    """Return `function (file:line)`, or the library if there are no debug symbols."""
    name = frame.findtext("fn") or "???"
    where = frame.findtext("file")
    if where:
        where += ":" + (frame.findtext("line") or "?")
    else:
        where = os.path.basename(frame.findtext("obj") or "?")
    return "%s (%s)" % (name, where)
