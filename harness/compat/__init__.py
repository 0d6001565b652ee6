"""Judges whether an image can run on a GPU: before it starts, and from the output of a trial that failed. Pure.

`docs/compatibility.md` lists what is known, with its sources. A cell is never left out because something is unknown.
"""

from harness.compat.doctor import DoctorRow, doctor_rows
from harness.compat.images import DescribedImage, needs_of
from harness.compat.rules import Compatibility, can_run, compatibility
from harness.compat.signatures import Signature, explain, signature
from harness.compat.table import load
from harness.compat.throttle import throttled

__all__ = [
    "Compatibility",
    "DescribedImage",
    "DoctorRow",
    "Signature",
    "can_run",
    "compatibility",
    "doctor_rows",
    "explain",
    "load",
    "needs_of",
    "signature",
    "throttled",
]
