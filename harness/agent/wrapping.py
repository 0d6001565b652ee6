"""Probes that wrap the scenario: their results are sent as files, and no verdict uses the timings of their trials.

A job has at most one: {"probe": {"name": "optrace", ...its settings}}. In the scenario process it is an object with
`wrap(step)`, the step to run instead, and `files()`, name -> text, once all steps are made.
"""

from .probes import artifacts, lines, optrace, valgrind

IN_PROCESS = {"optrace": optrace.OpTrace, "lines": lines.LineTables, "artifacts": artifacts.Artifacts}
PIECE = 256 << 10
Missing = valgrind.Missing


def find(job, module, step):
    """Return the job's probe, or None if it has none in the scenario process. Raises probes.optrace.ProbeError."""
    settings = dict(job.get("probe") or {})
    made = IN_PROCESS.get(settings.pop("name", None))
    return None if made is None else made(module, step, job["params"], **settings)


def around(job, folder):
    """Return the job's probe that runs the whole process inside another program, or None."""
    if (job.get("probe") or {}).get("name") != "valgrind":
        return None
    return valgrind.Valgrind(folder, whole_tree=bool(job["command"]))


def pieces(text):
    """Yield a file's text in parts, each small enough for one line; an empty text is one empty part."""
    for start in range(0, max(1, len(text)), PIECE):
        yield text[start : start + PIECE]
