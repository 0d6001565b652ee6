"""Wraps functions of a framework."""

import functools


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
