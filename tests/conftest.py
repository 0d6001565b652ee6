"""What tests of several parts share: the lab's hosts, which are started once for all of them."""

from tests.lab.running import lab

__all__ = ["lab"]
