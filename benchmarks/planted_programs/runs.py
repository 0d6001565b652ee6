"""Programs without steps: each launch is one figure."""

import sys
import time

from planted_carrier import planted

RUN_S = 3.0


def longer_run(more):
    """Take a share more time, without using the processor."""
    time.sleep(RUN_S * (1 + more))


PROGRAMS = {"run_sleeps": longer_run}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](planted(float(sys.argv[2])))
