"""Bisects a history: finds the version at which it changes with the fewest launches. Pure.

    versions -> decide -> launch what it says -> versions -> decide -> ... -> "done"

`docs/method.md` describes the method and when it is right.
"""
