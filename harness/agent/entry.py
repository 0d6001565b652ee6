"""The entry point for start.py. Each of the two processes imports only its own part, because a launch waits for both.

It does so at once, before any of the scenario's files can be imported.
"""

import json
import os
import sys


def main(root, arguments):
    """Run the scenario process if its file descriptors are given, else the supervisor; return the exit code.

    With the argument `gpus`, only print the GPU fields of `hello` as JSON.
    """
    if arguments == ["gpus"]:
        from .gpu import devices

        sys.stdout.write(json.dumps(devices.find().facts()) + "\n")
        return 0
    if arguments:
        from .scenario import scenario

        job, table, link = scenario.prepared(root, [int(number) for number in arguments])
        if job.get("program"):
            from .scenario import program

            return program.ProgramRun(job, root, table, link).run()
        return scenario.ScriptRun(job, os.path.join(root, job["script"]), table, link).run()
    from .supervisor import supervisor

    return supervisor.main(root)
