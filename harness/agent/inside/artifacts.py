"""Collects files that the scenario makes itself: its function `artifacts()`, called after the last step, returns
{name: text}."""

import re

from ..ending import ProbeError, call, line_of

NAME = re.compile(r"[a-z][a-z0-9.-]{0,63}")


class Artifacts(object):
    """Collects the files; the steps are unchanged."""

    def __init__(self, module, step, params):
        if not callable(getattr(module, "artifacts", None)):
            raise ProbeError("artifacts: the script has no function artifacts(); let it return {file name: text}")
        self._make = module.artifacts

    def wrap(self, step):
        return step

    def files(self):
        """Return the files. Raises ProbeError for an invalid name or for content that is not text."""
        files = call(self._make, "artifacts")
        if not isinstance(files, dict):
            raise self._wrong("it must return {file name: text}, but returned %s" % type(files).__name__)
        for name, text in files.items():
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise self._wrong("%.80r is not a file name: a letter, then a to z, digits, . and -" % (name,))
            if not isinstance(text, str):
                raise self._wrong("%s must be text, but is %s" % (name, type(text).__name__))
        return files

    def _wrong(self, text):
        return ProbeError("artifacts: %s%s" % (text, line_of(self._make)))
