"""Runs the part of the agent that start.py asks for.

Each of the two processes imports only its own part, because every launch waits for the imports. It does so first,
before any of the scenario's files can be imported instead.
"""

import json
import os
import sys
import time


def main(root, arguments):
    """Run the supervisor, or the scenario process if `arguments` are its file descriptors, and return the exit code.

    With `rank` and a program's arguments, run the program. With `gpus`, only print the GPU fields of `hello` as JSON.
    """
    if arguments == ["gpus"]:
        from .probes import gpus

        sys.stdout.write(json.dumps(gpus.find_gpus().facts()) + "\n")
        return 0
    if arguments[:1] == ["rank"]:
        from .scenario import entering, program_run

        return program_run.ProgramRun(entering.read_job(root), root).run(arguments[1:])
    if arguments:
        from .scenario import script_run

        job, table, link = script_run.open_job(root, [int(number) for number in arguments])
        return script_run.ScriptRun(job, os.path.join(root, job["script"]), table, link).run()
    return supervise(root)


def supervise(root):
    """Read ROOT/job.json, send `hello`, and watch the trial to its end; return 0 if `done` could be sent, else 1."""
    from . import libc, wire
    from .probes import gpus, image, memory
    from .supervisor import child
    from .supervisor.job import Job

    begun = time.perf_counter()
    with open(os.path.join(root, "job.json"), encoding="utf-8") as file:
        order = json.load(file)
    child.set_oom_score(-500)
    libc.adopt_orphans()
    outbox = wire.Outbox(1, order["marker"])
    found = gpus.find_gpus()
    if gpus.visible_cards(found.cards, os.environ):
        # Otherwise TensorFlow reserves nearly all GPU memory immediately, and its figures mean nothing.
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    told = dict(image.facts(order["environment"], os.environ, memory.find_cgroup()), **found.facts())
    outbox.send("hello", own_s=time.perf_counter() - begun, **told)
    Job(order, root, outbox, found).run()
    if outbox.pending:
        sys.stderr.write("the harness did not read all messages of the agent\n")
    return 1 if outbox.pending else 0
