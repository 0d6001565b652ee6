"""Counts the steps of an unmodified program and reads the numbers that it logs, with one file for each framework.

A file describes itself by one of these, or both:

    STEPS    {"torch": StepKind(…)}: the kinds of steps that it counts, which a matrix file names in `steps_are`
    ALWAYS   {module: change}: the modules that are changed whatever is a step: they log numbers, or wait for others

`change(module, hook)` is called once the program has imported the module. It changes the module so that `hook.mark()`
is called after each step, and `hook.log({name: number})` with the logged numbers. What the framework computes stays the
same. A file that another distribution installs (entry point `harness.hooks`) is copied beside these.
"""

import functools
import importlib
import numbers
import os


class StepKind(object):
    """A kind of steps. `end`: what ends a step, as `an optimizer's step`; `modules`: module name -> change; `grows`:
    each step adds to the memory, so that only its peak is judged; `is_common`: most programs import the framework
    without making a step of it, so that their lines may be steps."""

    def __init__(self, end, modules, grows=False, is_common=False):
        self.end, self.modules, self.grows, self.is_common = end, modules, grows, is_common


def _load():
    """Return the kinds of steps by name, and the changes that are always made, of all files in this folder."""
    steps, always = {}, []
    for name in sorted(os.listdir(os.path.dirname(__file__))):
        if name.endswith(".py") and name != "__init__.py":
            module = importlib.import_module("%s.%s" % (__name__, name[: -len(".py")]))
            steps.update(getattr(module, "STEPS", {}))
            always.append(getattr(module, "ALWAYS", {}))
    return steps, always


class Hook(object):
    """The functions that a framework's file calls. `kind`: the name of the framework. `waiting(call)` calls a function
    that waits for other ranks; `failed(error)` reports an exception that ends a process, None if it ends well.
    `mark_named(name)` marks a step of a function; only the first name counts, because the others are of helpers."""

    def __init__(self, kind, ticker, log, failed):
        self.mark = functools.partial(ticker.mark, kind)
        self.waiting, self.failed = ticker.waiting, failed
        self._log, self._named = log, None

    def mark_named(self, name):
        self._named = self._named or name
        if name == self._named:
            self.mark()

    def log(self, values):
        """Log the numbers in `values`, if it is a mapping; anything else in it is left out."""
        if hasattr(values, "items"):
            logged = {name: as_number(value) for name, value in list(values.items()) if isinstance(name, str)}
            logged = {name: value for name, value in logged.items() if value is not None}
            if logged:
                self._log(logged)


def as_number(value):
    """Return a number, or the number in a tensor of one number in the processor's memory, as a float or int; else None.
    A tensor on a GPU is not read, because the program would wait for it."""
    if isinstance(value, numbers.Real):
        return value
    place = getattr(getattr(value, "device", None), "type", None)
    if place == "cpu" and getattr(value, "ndim", 1) == 0:
        return value.item()
    return None


def modules(steps_are):
    """Return the names of all modules that are changed."""
    return sorted({name for _, changes in _chosen(steps_are) for name in changes})


def awaited(steps_are, ticker, log, note, failed):
    """Return module name -> functions, for importing.Finder.

    `note(kind, changed)` is called after a module was imported; `changed`: whether it could be changed.
    """
    functions = {}
    for kind, modules in _chosen(steps_are):
        hook = Hook(kind, ticker, log, failed)
        for name, change in modules.items():
            functions.setdefault(name, []).append(_changing(change, hook, functools.partial(note, kind)))
    return functions


def _chosen(steps_are):
    chosen = [(kind, KINDS[kind].modules) for kind in KINDS if steps_are in ("auto", kind)]
    return chosen + [("log", modules) for modules in ALWAYS]


def _changing(change, hook, note):
    def changed(module):
        try:
            change(module, hook)
        except AttributeError:
            note(False)  # an unknown version of the framework; the message says so if no step is seen
            return
        note(True)

    return changed


def may_make_none(hooked):
    """Return whether a program may import these kinds without making a step of them, so that its lines may be steps."""
    return all(kind in KINDS and KINDS[kind].is_common for kind in hooked)


def why_unseen(steps_are, hooked):
    """Return why no step was seen. `hooked`: kind -> whether its imported modules could be changed."""
    if ":" in steps_are:
        module = steps_are.partition(":")[0]
        return "%s was not called" % steps_are if "function" in hooked else "%s was not imported" % module
    if not hooked:
        return "it did not import %s" % ("any known framework" if steps_are == "auto" else steps_are)
    unknown = sorted(kind for kind in hooked if not hooked[kind])
    if unknown:
        return "this version of %s is not known" % " and ".join(unknown)
    return "%s: none was made" % " or ".join(KINDS[kind].end for kind in sorted(hooked) if kind in KINDS)


# ---------------------------------------------------------------- for the files


def after(owner, name, then):
    """Replace `owner.name` with a function that calls `then(args, kwargs)` after it. Raises AttributeError."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        result = original(*args, **kwargs)
        then(args, kwargs)
        return result

    setattr(owner, name, wrapped)


def argument(args, kwargs, place, name):
    """Return an argument given by its place or its name; None if it was not given."""
    return args[place] if len(args) > place else kwargs.get(name)


class Counted(object):
    """Stands in for a callable: calls it, then calls `mark`; all other attributes are those of the callable."""

    def __init__(self, function, mark):
        self.__wrapped__ = function
        self._mark = mark

    def __call__(self, *args, **kwargs):
        result = self.__wrapped__(*args, **kwargs)
        self._mark()
        return result

    def __getattr__(self, name):
        if name == "__wrapped__":  # requested while a copy of it is made
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __reduce_ex__(self, protocol):
        """Copy and pickle the callable alone, so that copies, also those in other processes, do not count."""
        return self.__wrapped__.__reduce_ex__(protocol)

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return Counted(self.__wrapped__.__get__(instance, owner), self._mark)

    def __repr__(self):
        return repr(self.__wrapped__)


KINDS, ALWAYS = _load()
