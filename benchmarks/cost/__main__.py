"""What the harness costs: `python -m benchmarks.cost CASE [--OPTION VALUE …]`; `--help` lists the cases.

Exits with 1 if a bound of the case is missed.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Mapping

from benchmarks.cost import agent, client, launches, pools, reports, sweeps

CASES: Mapping[str, Callable[..., bool]] = {
    "agent": agent.agent,
    "client": client.client,
    "trial": launches.trial,
    "cells": sweeps.cells,
    "reports": reports.reports,
    "pool": pools.pool,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    chosen = parser.add_subparsers(dest="case", required=True)
    for name, case in CASES.items():
        about = inspect.getdoc(case) or ""
        own = chosen.add_parser(name, help=about.splitlines()[0], description=about)
        for option in inspect.signature(case).parameters.values():
            own.add_argument(f"--{option.name.replace('_', '-')}", type=type(option.default), default=option.default)
    asked = vars(parser.parse_args())
    return 0 if CASES[asked.pop("case")](**asked) else 1


if __name__ == "__main__":
    sys.exit(main())
