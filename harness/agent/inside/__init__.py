"""Loads the probe that wraps the scenario, if the job asks for one: {"probe": {"name": "optrace", …its settings}}.

In the scenario process a probe is an object with `wrap(step)`, which returns the step to run instead, and `files()`,
which returns name -> text once all steps are made. Its results are sent as files, and no verdict uses the timings of
such a trial.
"""

import importlib

IN_PROCESS = {"optrace": "OpTrace", "lines": "LineTables", "artifacts": "Artifacts"}
PIECE = 256 << 10  # characters


class NoComponents(object):
    """Stands in for inside.components.Components in a launch that does not ask for components."""

    def look(self):
        """Do nothing."""

    def files(self):
        return {}


def probe_name(job):
    return (job.get("probe") or {}).get("name")


def probe_class(job):
    """Return the class of the job's probe in the scenario process, or None.

    Only a probe that the job asks for is imported, because every launch would wait for the import. Call this first,
    before the scenario's own files can be imported in its place.
    """
    name = probe_name(job)
    if name not in IN_PROCESS:
        return None
    return getattr(importlib.import_module("%s.%s" % (__name__, name)), IN_PROCESS[name])


def make_probe(job, module, step):
    """Return the job's probe, or None if it has none in the scenario process. Raises ProbeError."""
    kind = probe_class(job)
    if kind is None:
        return None
    settings = {name: value for name, value in job["probe"].items() if name != "name"}
    return kind(module, step, job["params"], **settings)


def make_wrapper(job, folder):
    """Return the job's probe that runs the whole process inside another program, or None."""
    if probe_name(job) != "valgrind":
        return None
    from .valgrind import Valgrind

    return Valgrind(folder, whole_tree=bool(job["command"]))


def make_component_lister(job):
    """Return a Components if the job asks for the components of the image, else a NoComponents."""
    if probe_name(job) != "components":
        return NoComponents()
    from .components import Components

    return Components()


def text_parts(text):
    """Yield a file's text in parts, each small enough for one line; an empty text is one empty part."""
    for start in range(0, max(1, len(text)), PIECE):
        yield text[start : start + PIECE]
