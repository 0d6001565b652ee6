"""Resolves `tags: {match, from, to}` to the tags that a registry has now, oldest first."""

from __future__ import annotations

from harness import model
from harness.matrix.keys import series_keys as keys
from harness.matrix.problems import Context, KeyPath, listed, shown
from harness.matrix.series.packages import Entry
from harness.registry.order import in_range, is_bound
from harness.registry.registry_client import TagSource
from harness.registry.registry_errors import RegistryDenied, RegistryTrouble


def read_tags(
    repository: str, wanted: keys.TagRange, key: KeyPath, context: Context, *, source: TagSource
) -> list[Entry]:
    """Return the images of one series; problems are added to the context.

    Raises RegistryTrouble, with the place, if the registry does not answer, since that is not an error in the file.
    """
    bounds = {"from": wanted.from_, "to": wanted.to}
    wrong = [name for name, bound in bounds.items() if bound is not None and not is_bound(bound)]
    for name in wrong:
        text = f"{shown(bounds[name])} is not a version; write one such as 20.12 or 2.1.0rc1, not the whole tag"
        context.add((*key, name), text)
    if wrong:
        return []
    try:
        all_tags = source.tags(repository)
    except RegistryDenied as error:
        context.add(key, str(error))
        return []
    except RegistryTrouble as error:
        raise RegistryTrouble(f"{context.where(*key)}: {error}") from error
    tags = in_range(all_tags, match=wanted.match, first=wanted.from_, last=wanted.to)
    if not tags:
        context.add(key, _none_found(repository, wanted, all_tags))
    return [Entry(version=tag, key=key, source=model.Pull(reference=f"{repository}:{tag}")) for tag in tags]


def _none_found(repository: str, wanted: keys.TagRange, all_tags: tuple[str, ...]) -> str:
    """Return a message that names alternatives: the newest tags that match the pattern, else some of all tags."""
    alike = in_range(all_tags, match=wanted.match)
    bounds = [f"{name} {bound}" for name, bound in (("from", wanted.from_), ("to", wanted.to)) if bound]
    text = " ".join([f"no tag of {repository} matches {shown(wanted.match)}", *bounds])
    there = (
        f"newest of them: {listed(alike[-4:])}" if alike else f"it has {len(all_tags)} tags: {listed(all_tags, most=4)}"
    )
    return f"{text}; {there}"
