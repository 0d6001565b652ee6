"""The entry point for start.py. It imports all of the agent at once: later its folder is not on sys.path."""

import json
import os
import sys

from . import gpu, program, scenario, supervisor


def main(root, arguments):
    """Run the scenario process if its file descriptors are given, else the supervisor; return the exit code.

    With the argument `gpus`, only print the GPU fields of `hello` as JSON.
    """
    if arguments == ["gpus"]:
        sys.stdout.write(json.dumps(gpu.find().facts()) + "\n")
        return 0
    if arguments:
        job, table, link = scenario.prepared(root, [int(number) for number in arguments])
        if job.get("program"):
            return program.Program(job, root, table, link).run()
        return scenario.Scenario(job, os.path.join(root, job["script"]), table, link).run()
    return supervisor.main(root)
