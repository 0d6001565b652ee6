"""What a registry of images says: tags, digests, dates, sizes (the OCI distribution specification, and Docker's v2).

Only what was answered whole counts. Anything else is a RegistryTrouble with one line: the host, what, what to do.
"""

from harness.registry.client import Layer, PublishedImage, Registry, TagSource
from harness.registry.errors import RegistryDenied, RegistrySilent, RegistryTrouble
from harness.registry.order import in_range, is_bound
from harness.registry.pulls import Pulls, pull_bytes, pull_plan

__all__ = [
    "Layer",
    "PublishedImage",
    "Pulls",
    "Registry",
    "RegistryDenied",
    "RegistrySilent",
    "RegistryTrouble",
    "TagSource",
    "in_range",
    "is_bound",
    "pull_bytes",
    "pull_plan",
]
