"""Lists the reasons that a plan gives, and its descriptions of what the hosts will do."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class PlanReason(Reason):
    """Says why a plan leaves a cell out, and how a host gets an image."""

    NEEDS_ENGINE = "needs a container engine"

    PULL = "{name}: pull {reference}{mark}"
    BUILD = "{name}: build {context} with {args}{mark}"
    INSTALL = "{name}: install {packages} over {base}{mark}"
    INSTALL_IN_ENVIRONMENT = "{name}: install {packages} in a virtual environment of {python}{mark}"
    RUNNING_PYTHON = "the running Python"
