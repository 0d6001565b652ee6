"""Judges whether an image can run on a GPU: before it starts, and from the output of a trial that failed. Pure.

`docs/gpu.md` tells the rules. A cell is never left out because something is unknown.
"""

from harness.compat.image_on_gpu import (
    Compatibility,
    KnownFailure,
    can_run,
    compatibility,
    compatibility_on,
    explain_failure,
    signature,
    throttled,
)
from harness.compat.image_requirements import needs_of
