"""Reads the file's probes into the model's probes."""

from __future__ import annotations

from collections.abc import Iterator

from harness import model
from harness.matrix.keys import scenario_keys as keys
from harness.matrix.problems import Context, KeyPath, unknown_name


def read_probes(entry: keys.ScenarioEntry, key: KeyPath, context: Context) -> tuple[model.Probe, ...]:
    """Return the scenario's probes. Problems are added to the context."""
    asked = entry.probes
    if entry.command is not None:
        for name in ("optrace", "lines", "artifacts", "largest"):
            if getattr(asked, name) is not None:
                context.add((*key, "probes", name), "is for a script; a command can have valgrind")
    if entry.program is not None or entry.module is not None:
        for name in asked.model_fields_set:
            context.add((*key, "probes", name), "is for a script or a command; a program has no probes")
    if asked.optrace is not None:
        for place, step in enumerate(asked.optrace.at):
            if step in asked.optrace.at[:place]:
                context.add((*key, "probes", "optrace", "at", place), f"{step} appears twice; keep one")
    if asked.largest is not None:
        _check_largest(asked.largest, entry, (*key, "probes", "largest"), context)
    return tuple(_probes(asked))


def _check_largest(asked: keys.Largest, entry: keys.ScenarioEntry, key: KeyPath, context: Context) -> None:
    if asked.param not in entry.params:
        context.add((*key, "param"), unknown_name(asked.param, list(entry.params), what="param"))
    elif not all(isinstance(value, int) and not isinstance(value, bool) for value in entry.params[asked.param]):
        context.add((*key, "param"), f"the values of {asked.param} must be whole numbers to be compared")


def _probes(asked: keys.Probes) -> Iterator[model.Probe]:
    if asked.optrace is not None:
        at, repeat = tuple(sorted(asked.optrace.at)), asked.optrace.repeat
        yield model.Probe(name="optrace", steps=at[-1] + repeat - 1, settings=(("at", at), ("repeat", repeat)))
    if asked.lines is not None:
        yield model.Probe(name="lines", steps=asked.lines.steps)
    if asked.valgrind is not None:
        yield model.Probe(name="valgrind", steps=asked.valgrind.steps)
    if asked.artifacts is not None:
        yield model.Probe(name="artifacts", steps=asked.artifacts.steps)
    if asked.largest is not None:
        yield model.Probe(name="largest", steps=asked.largest.steps, settings=(("param", asked.largest.param),))
