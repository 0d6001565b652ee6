"""Compares the environments on both sides of a finding, as the trials recorded them, for `harness diff`.

The engine is asked for the image's own settings and layers only if the user requests it: a copied run may name any
engine and image, and what the user's own engine knows about an image is private.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from harness import facts
from harness.errors import HarnessError, UsageError
from harness.model import Finding, Host, Trial
from harness.model.answers.evidence import Changed, EnvironmentDifference, Section
from harness.run.docker.docker_client import connect, engine_errors
from harness.run.images import find_images
from harness.store.lookup import cell_of, telling_trial
from harness.store.saved_run import StoredRun

Inspect = Callable[[str], Mapping[str, Any]]
"""Returns the engine's description of an image, by id. Raises HarnessError if the engine or the image is missing."""


def difference(run: StoredRun, finding: Finding, *, inspect: Inspect | None) -> EnvironmentDifference:
    """Return what changed between the versions before and after a finding. If `inspect` is None, no engine is asked.

    Raises UsageError if the finding has no version before it.
    """
    if finding.before is None:
        raise UsageError(
            f"{finding.series} {finding.after}: is bad from the start, so there is no good version to compare with"
        )
    trials = [_trial(run, finding, version) for version in (finding.before, finding.after)]
    sections = (*facts.sections(*trials), *([] if finding.lane.host.in_environments else _image(trials, inspect)))
    return EnvironmentDifference(finding=finding, before=finding.before, after=finding.after, sections=sections)


def _trial(run: StoredRun, finding: Finding, version: str) -> Trial | None:
    cell = cell_of(run, finding, version)
    return None if cell is None else telling_trial([one for one in run.cells[cell.id].trials if one.facts])


# ---------------------------------------------------------------- the engine's description of the image


def _image(trials: Sequence[Trial | None], inspect: Inspect | None) -> list[Section]:
    digests = facts.section(
        "image", [{"digest": one.image_digest} if one and one.image_digest else None for one in trials]
    )
    try:
        asked = [_inspected(trial, inspect) for trial in trials]
    except HarnessError as error:
        return [digests, *(Section(title=title, unknown=str(error)) for title in ("image settings", "layers"))]
    return [digests, facts.section("image settings", [_settings(one) for one in asked]), _layers(asked)]


def _inspected(trial: Trial | None, inspect: Inspect | None) -> Mapping[str, Any]:
    if inspect is None:
        raise UsageError("the engine was not asked; ask it with --ask-engine")
    if trial is None or not trial.reference:
        raise UsageError("the run does not record which image was launched")
    return inspect(trial.reference)


def _settings(image: Mapping[str, Any]) -> dict[str, str]:
    config = image.get("Config") or {}
    labels = (config.get("Labels") or {}).items()
    plain = {name: str(config[name]) for name in ("Entrypoint", "Cmd", "WorkingDir", "User") if config.get(name)}
    about = {name: str(image[name]) for name in ("Created", "Size", "Architecture") if image.get(name)}
    return plain | about | {f"label {name}": str(value) for name, value in labels if not name.startswith("harness.")}


def _layers(asked: Sequence[Mapping[str, Any]]) -> Section:
    """Compare the layers by digest. The images share the layers from the bottom up to the first that differs."""
    before, after = (list((image.get("RootFS") or {}).get("Layers") or ()) for image in asked)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    gone = [Changed(name=f"layer {same + n}", before=layer, after=None) for n, layer in enumerate(before[same:], 1)]
    new = [Changed(name=f"layer {same + n}", before=None, after=layer) for n, layer in enumerate(after[same:], 1)]
    return Section(title="layers", changes=(*gone, *new), same=same)


def of_engine(host: Host, *, environ: Mapping[str, str]) -> Inspect | None:
    """Return a function that connects to the host's engine and asks about an image. Return None for a host without
    containers, or whose engine answers only during an allocation."""

    def inspect(image: str) -> Mapping[str, Any]:
        client = connect(host, environ=environ)
        try:
            with engine_errors(host.engine):
                described = find_images.local_image(client, image)
        finally:
            client.close()
        if described is None:
            raise UsageError(f"the engine of {host.name} no longer has {image[:19]}")
        return described

    return None if host.in_environments or host.request is not None else inspect
