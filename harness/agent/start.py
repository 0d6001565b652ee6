"""Starts the agent: `python -B ROOT/start.py` is the supervisor, which starts the scenario process in the same way.

ROOT is on sys.path only while the agent's package is imported, so that it shadows nothing that the scenario imports.
Each of the two processes imports only its own part, because every launch waits for the imports. It does so first,
before any of the scenario's files can be imported instead.
"""

import json
import os
import sys


def main(root, arguments):
    """Run the supervisor, or the scenario process if `arguments` are its file descriptors, and return the exit code.

    With `rank` and a program's arguments, run the program; with `client`, send requests to a server. With `gpus`, only
    print the GPU fields of `hello` as JSON.
    """
    if arguments == ["gpus"]:
        from harness_agent.probes import gpus

        sys.stdout.write(json.dumps(gpus.find_gpus().facts()) + "\n")
        return 0
    if arguments[:1] == ["rank"]:
        from harness_agent.scenario import program_run

        return program_run.ProgramRun(root).run(arguments[1:])
    if arguments[:1] == ["client"]:
        from harness_agent.serving import choose_client

        return choose_client.run(root, arguments[1:])
    if arguments:
        from harness_agent.scenario import script_run

        return script_run.ScriptRun(root, [int(number) for number in arguments]).run()
    from harness_agent.supervisor import job

    return job.supervise(root)


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, here)
    try:
        import harness_agent  # noqa: F401 (its modules are found by its own path from now on)
    finally:
        # The interpreter put the folder of this file there too (as a relative path before 3.9).
        sys.path[:] = [place for place in sys.path if os.path.abspath(place) != here]
    sys.exit(main(here, sys.argv[1:]))
