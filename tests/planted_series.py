"""The series of the tests and benchmarks that plant a fault: versions of one small real wheel."""

from __future__ import annotations

import json
from collections.abc import Sequence


def six(versions: Sequence[str], *, base: str = "", **environment: str) -> str:
    """Return the versions of `six` as flow YAML. The scenario reads its version from PLANTED_VERSION."""
    told = {"PLANTED_VERSION": "{version}", **environment}
    series = {"install": ["six=={version}"], "versions": list(versions), "environment": told}
    return json.dumps(series | ({"base": base} if base else {}))
