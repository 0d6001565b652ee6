"""Whether an image can run on a GPU: before time is spent, and from what a trial left when it could not. Pure.

`docs/compatibility.md` says what is known and where from. What is not known is never a reason to leave a cell out.
"""

from harness.compat.doctor import DoctorRow, doctor_rows
from harness.compat.images import DescribedImage, Needs, needs_of
from harness.compat.rules import Compatibility, State, can_run, compatibility
from harness.compat.signatures import Signature, explain, signature
from harness.compat.table import CompatibilityTable, Release, load
from harness.compat.throttle import throttled

__all__ = [
    "Compatibility",
    "CompatibilityTable",
    "DescribedImage",
    "DoctorRow",
    "Needs",
    "Release",
    "Signature",
    "State",
    "can_run",
    "compatibility",
    "doctor_rows",
    "explain",
    "load",
    "needs_of",
    "signature",
    "throttled",
]
