"""Resolves `tags: {match, from, to}` to the tags that a registry has now, oldest first."""

from __future__ import annotations

from dataclasses import dataclass

from harness import model
from harness.matrix import keys
from harness.matrix.context import Context, Entry
from harness.matrix.problems import KeyPath, listed, shown
from harness.registry.client import TagSource
from harness.registry.errors import RegistryDenied, RegistryTrouble
from harness.registry.order import in_range, is_bound


@dataclass(frozen=True, kw_only=True)
class TagReader:
    context: Context
    source: TagSource

    def read(self, repository: str, wanted: keys.TagRange, *, key: KeyPath) -> list[Entry]:
        """Return the images of one series; problems are added to the context.

        Raises RegistryTrouble, with the place, if the registry does not answer: that is not an error of the file.
        """
        if not self._sound(wanted, key):
            return []
        try:
            all_tags = self.source.tags(repository)
        except RegistryDenied as error:
            self.context.problems.add(key, str(error))
            return []
        except RegistryTrouble as error:
            raise RegistryTrouble(f"{self.context.where(*key)}: {error}") from error
        tags = in_range(all_tags, match=wanted.match, first=wanted.from_, last=wanted.to)
        if not tags:
            self.context.problems.add(key, _none_found(repository, wanted, all_tags))
        return [Entry(version=tag, key=key, source=model.Pull(reference=f"{repository}:{tag}")) for tag in tags]

    def _sound(self, wanted: keys.TagRange, key: KeyPath) -> bool:
        bounds = {"from": wanted.from_, "to": wanted.to}
        wrong = [name for name, bound in bounds.items() if bound is not None and not is_bound(bound)]
        for name in wrong:
            text = f"{shown(bounds[name])} is not a version; write one such as 20.12 or 2.1.0rc1, not the whole tag"
            self.context.problems.add((*key, name), text)
        return not wrong


def _none_found(repository: str, wanted: keys.TagRange, all_tags: tuple[str, ...]) -> str:
    """Return the message with the alternatives: the newest tags that match the pattern, or some of all tags."""
    alike = in_range(all_tags, match=wanted.match)
    bounds = [f"{name} {bound}" for name, bound in (("from", wanted.from_), ("to", wanted.to)) if bound]
    text = " ".join([f"no tag of {repository} matches {shown(wanted.match)}", *bounds])
    there = (
        f"newest of them: {listed(alike[-4:])}" if alike else f"it has {len(all_tags)} tags: {listed(all_tags, most=4)}"
    )
    return f"{text}; {there}"
