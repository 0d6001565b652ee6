"""Defines the errors of registries. Each message is one line with the host, the problem and the remedy. It never
contains a URL, which may hold a signature or a password.
"""

from __future__ import annotations

from harness.errors import InfrastructureError


class RegistryTrouble(InfrastructureError):
    """A registry does not answer, or answers unlike a registry; this permits no conclusion.

    `problem` is the text without `hint`, which says how the answer is treated, or what to do about the registry.
    """

    def __init__(self, problem: str, *, hint: str = "", place: object = "") -> None:
        super().__init__(f"{problem}; {hint}" if hint else problem, place=place)
        self.problem = problem


class RegistrySilent(RegistryTrouble):
    """A registry could not be reached, or stayed busy, in all attempts; another request would wait just as long."""


class RegistryDenied(RegistryTrouble):
    """A repository or image does not exist, or access is denied; a registry need not say which."""


class Fleeting(Exception):
    """A failure that may not occur at the next attempt. Used only inside this package."""
