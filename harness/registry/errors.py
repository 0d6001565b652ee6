"""What can go wrong with a registry. Each message is one line: the host, what, and what to do; never a URL, which may
hold a signature or a password."""

from __future__ import annotations

from harness.errors import InfrastructureError


class RegistryTrouble(InfrastructureError):
    """A registry does not answer, or not as a registry: nothing is known, and nothing may follow from it."""


class RegistrySilent(RegistryTrouble):
    """It cannot be reached, or stays busy, after all attempts: another question would wait as long."""


class RegistryDenied(RegistryTrouble):
    """There is no such repository or image, or it is not for us: a registry need not say which."""


class Fleeting(Exception):
    """Something that may be better at the next attempt. Only seen inside this part."""
