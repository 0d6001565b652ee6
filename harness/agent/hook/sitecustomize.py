"""Lets the agent into each Python process that a program starts: this folder is first on PYTHONPATH there.

It hides the folder from sys.path, runs the image's own sitecustomize, if any, and then `scenario/entering.py`. A
process that it cannot enter runs as it would alone, and is not seen.
"""

import os
import sys


def _run_own():
    """Import the sitecustomize that would have been imported without this one, which stays if there is none."""
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401 (another one: this folder is no longer on sys.path)
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


def _enter(root):
    sys.path.insert(0, root)
    try:
        from harness_agent.scenario import entering
    finally:
        sys.path.remove(root)
    entering.enter(root)


_folder = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != _folder]
try:
    _run_own()
finally:
    if os.environ.get("HARNESS_GROUP"):
        try:
            _enter(os.path.dirname(os.path.dirname(_folder)))
        except Exception:  # whatever it is, the program must not notice it
            pass
