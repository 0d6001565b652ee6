"""What a machine with a broken GPU does to a scenario."""

import sys
import time

PARAMS = {"fault": ["none", "slow", "xid", "driver"]}
BANNER = (
    "ERROR: This container was built for NVIDIA Driver Release 560.35 or later, but\n"
    "       version 535.104.05 was detected and compatibility mode is UNAVAILABLE.\n"
)


def setup(fault="none"):
    if fault == "driver":
        sys.stderr.write(BANNER)
        raise RuntimeError("no GPU can be used")

    def step():
        if fault == "slow":
            time.sleep(0.005)
        if fault == "xid":
            raise RuntimeError("NVRM: Xid (PCI:0000:01:00): 79, GPU has gone")

    return step
