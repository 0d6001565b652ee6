"""Error rates of the judge, and of simpler rules on the same traces. The same seed gives the same tables.

    python -m benchmarks.accuracy --seed 1 --count 200 --json accuracy.json

`accuracy_traces` judges single traces. `accuracy_histories` names versions by their step times, and `accuracy_failures`
by flaky failures. `accuracy_searches` counts the launches of a bisection.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import accuracy_failures, accuracy_histories, accuracy_searches, accuracy_traces

PARTS = {
    "traces": accuracy_traces,
    "histories": accuracy_histories,
    "failures": accuracy_failures,
    "searches": accuracy_searches,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only some: {', '.join(PARTS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200, help="traces per generator; other parts use fewer")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    begun = time.monotonic()
    content: dict[str, Any] = {"seed": options.seed, "count": options.count}
    for name, part in {name: PARTS[name] for name in options.parts or PARTS}.items():
        found = part.rows(seed=options.seed, count=options.count // part.SHARE or 1)
        print(part.table(found), flush=True, end="\n\n")
        content[name] = [asdict(row) for row in found]
    print(f"seed {options.seed}, {options.count} traces per generator, {time.monotonic() - begun:.0f} s")
    if options.json is not None:
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
