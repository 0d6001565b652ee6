"""Asks image registries for tags, digests, labels and sizes (the OCI distribution specification, and Docker's v2).

Only complete answers count. Anything else raises RegistryTrouble with one line: the host, what is wrong, what to do.
"""

from harness.registry.client import PublishedImage, Registry, TagSource
from harness.registry.errors import RegistryDenied, RegistrySilent, RegistryTrouble
from harness.registry.order import in_range, is_bound

__all__ = [
    "PublishedImage",
    "Registry",
    "RegistryDenied",
    "RegistrySilent",
    "RegistryTrouble",
    "TagSource",
    "in_range",
    "is_bound",
]
