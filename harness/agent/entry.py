"""What start.py calls. Imports all of the agent at once: afterwards its folder is no longer on sys.path."""

import json
import sys

from . import gpu, scenario, supervisor


def main(root, arguments):
    """Run the scenario process when told its file descriptors, else the supervisor; returns the exit code.

    With the argument `gpus` it only prints what `hello` would tell of the GPUs, as JSON, and ends.
    """
    if arguments == ["gpus"]:
        sys.stdout.write(json.dumps(gpu.find().facts()) + "\n")
        return 0
    if arguments:
        return scenario.main(root, [int(number) for number in arguments])
    return supervisor.main(root)
