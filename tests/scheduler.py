"""The scheduler for `--dist loadgroup`: pytest 9.2 does not read the names in which pytest-xdist 3.8 marks groups."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

from tests.groups import group_of

SHARE_AN_ENGINE = ("tests/lab/", "tests/contract/", "tests/integration/", "tests/registry/")


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """Groups begin first, the largest group before the others. `engine_is_shared`: processes do not have their own
    engines.
    """

    engine_is_shared = False

    def _split_scope(self, nodeid: str) -> str:
        if self.engine_is_shared and nodeid.startswith(SHARE_AN_ENGINE):
            return "the engine"
        return group_of(nodeid) or nodeid
