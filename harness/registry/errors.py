"""Defines the errors of registries. Each message is one line with the host, the problem and the remedy. It never
contains a URL, which may hold a signature or a password.
"""

from __future__ import annotations

from harness.errors import InfrastructureError


class RegistryTrouble(InfrastructureError):
    """A registry does not answer, or not as a registry: nothing is known, and nothing may be concluded from that."""


class RegistrySilent(RegistryTrouble):
    """A registry cannot be reached, or stays busy, after all attempts; another request would wait as long."""


class RegistryDenied(RegistryTrouble):
    """Raised when there is no such repository or image, or access is denied; a registry need not say which."""


class Fleeting(Exception):
    """A failure that may go away at the next attempt. Used only inside this package."""
