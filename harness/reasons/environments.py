"""Lists the reasons why environments cannot be compared, and the names of how packages were installed."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class EnvironmentReason(Reason):
    """Says why a part of the environments of two launches is unknown."""

    NEVER_RAN = "no launch of one side recorded its environment"
    WHEELS_UNKNOWN = "an older launch did not record which wheels its packages came from"
    LIBRARIES_UNKNOWN = (
        "loaded libraries are recorded after setup and the first step, which one of the launches did not complete"
    )


@unique
class InstalledName(Reason):
    """Says how a package was installed."""

    PURE = "pure Python"
    COMPILED = "compiled"
    FROM_SOURCE = "compiled from source, it seems"
