"""Probes that wrap the scenario: their results are sent as files, and no verdict uses the timings of their trials.

A job has at most one: {"probe": {"name": "optrace", ...its settings}}. In the scenario process it is an object with
`wrap(step)`, the step to run instead, and `files()`, name -> text, once all steps are made.
"""

PIECE = 256 << 10


class Missing(Exception):
    """The program that runs the scenario is not in the image."""


class NoComponents(object):
    """Stands in for inside.components.Components in a launch that does not ask for components."""

    def look(self):
        """Look at nothing."""

    def files(self):
        """Return no file."""
        return {}


def name_of(job):
    return (job.get("probe") or {}).get("name")


def load(job):
    """Return the class of the job's probe in the scenario process, or None.

    A probe is imported only if the job asks for it, because each launch would wait for it. This is called before the
    scenario's files can be imported in its place.
    """
    name = name_of(job)
    if name == "optrace":
        from .inside.optrace import OpTrace

        return OpTrace
    if name == "lines":
        from .inside.lines import LineTables

        return LineTables
    if name == "artifacts":
        from .inside.artifacts import Artifacts

        return Artifacts
    return None


def find(job, module, step):
    """Return the job's probe, or None if it has none in the scenario process. Raises inside.optrace.ProbeError."""
    made = load(job)
    settings = dict(job.get("probe") or {})
    settings.pop("name", None)
    return None if made is None else made(module, step, job["params"], **settings)


def around(job, folder):
    """Return the job's probe that runs the whole process inside another program, or None."""
    if name_of(job) != "valgrind":
        return None
    from .inside.valgrind import Valgrind

    return Valgrind(folder, whole_tree=bool(job["command"]))


def components(job):
    """Return what lists the components of the image if the job asks for it, else a NoComponents."""
    if name_of(job) != "components":
        return NoComponents()
    from .inside.components import Components

    return Components()


def pieces(text):
    """Yield a file's text in parts, each small enough for one line; an empty text is one empty part."""
    for start in range(0, max(1, len(text)), PIECE):
        yield text[start : start + PIECE]
