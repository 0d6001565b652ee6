"""Runs the part of the agent that start.py asks for.

Each of the two processes imports only its own part, because every launch waits for the imports. It does so first,
before any of the scenario's files can be imported instead.
"""

import json
import os
import sys


def main(root, arguments):
    """Run the supervisor, or the scenario process if `arguments` are its file descriptors, and return the exit code.

    With `rank` and a program's arguments, run the program. With `gpus`, only print the GPU fields of `hello` as JSON.
    """
    if arguments == ["gpus"]:
        from .gpu import devices

        sys.stdout.write(json.dumps(devices.find_gpus().facts()) + "\n")
        return 0
    if arguments[:1] == ["rank"]:
        from .scenario import entering, program_run

        return program_run.ProgramRun(entering.read_job(root), root).run(arguments[1:])
    if arguments:
        from .scenario import script_run

        job, table, link = script_run.open_job(root, [int(number) for number in arguments])
        return script_run.ScriptRun(job, os.path.join(root, job["script"]), table, link).run()
    from .supervisor import supervisor

    return supervisor.main(root)
