"""Files that the scenario makes itself: its `artifacts()`, called after the last step, returns {name: text}."""

from .optrace import ProbeError


class Artifacts(object):
    """Leaves the steps as they are."""

    def __init__(self, module, step, params):
        if not callable(getattr(module, "artifacts", None)):
            raise ProbeError("artifacts: the script has no function artifacts(); let it return {file name: text}")
        self._make = module.artifacts

    def wrap(self, step):
        return step

    def files(self):
        return {str(name): str(text) for name, text in self._make().items()}
