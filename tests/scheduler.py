"""The scheduler of `--dist loadgroup`: pytest-xdist 3.8 writes its groups into names that pytest 9.2 reads no more."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

from tests.groups import group_of

SHARE_AN_ENGINE = ("tests/lab/", "tests/contract/", "tests/integration/", "tests/registry/")


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """Groups begin first, the largest one before the others. `engine_is_shared`: not each process has its own."""

    engine_is_shared = False

    def _split_scope(self, nodeid: str) -> str:
        if self.engine_is_shared and nodeid.startswith(SHARE_AN_ENGINE):
            return "the engine"
        return group_of(nodeid) or nodeid
