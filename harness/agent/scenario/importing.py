"""Calls functions with each awaited module as soon as the program has imported it. The import hook itself imports
nothing.

The module keeps its own loader, whose method `exec_module` is overridden for one import, by an instance attribute.
"""

import sys


class _HeadedBy(list):
    """A list whose first element stays first, even if a program inserts its own finders before all others."""

    def __init__(self, first, others):
        list.__init__(self, [first, *others])

    def insert(self, place, finder):
        list.insert(self, max(1, place) if place >= 0 else place, finder)


class Finder(object):
    """A finder at the head of sys.meta_path that finds nothing itself.

    `awaited`: module name -> list of functions, which are called with the module.
    """

    def __init__(self, awaited):
        self._awaited = dict(awaited)
        self._busy = set()

    def install(self):
        """Handle the awaited modules that are already imported, and wait for the others."""
        self._sweep()
        sys.meta_path = _HeadedBy(self, sys.meta_path)

    def find_spec(self, name, path=None, target=None):
        """Return the spec that the other finders find for an awaited module; None for any other module."""
        if self._awaited:
            self._sweep()
        if name not in self._awaited or name in self._busy:
            return None
        self._busy.add(name)
        try:
            spec = self._spec_of_others(name, path, target)
        finally:
            self._busy.discard(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._cover(spec.loader, name)
        return spec

    def _spec_of_others(self, name, path, target):
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                return spec
        return None

    def _cover(self, loader, name):
        if isinstance(loader, type):
            return  # that of all frozen modules: `_sweep` finds the module later
        execute = loader.exec_module

        def exec_module(module):
            loader.__dict__.pop("exec_module", None)
            execute(module)
            self._call_back(name, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            return  # a loader that cannot be changed: `_sweep` finds the module later

    def _sweep(self):
        """Handle awaited modules that were imported before the hook, or through a finder before this one."""
        for name in [name for name in self._awaited if name in sys.modules]:
            module = sys.modules[name]
            if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
                self._call_back(name, module)

    def _call_back(self, name, module):
        for function in self._awaited.pop(name, ()):
            function(module)
