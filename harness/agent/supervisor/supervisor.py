"""Runs the supervisor: it reads the job, sends `hello`, and watches one trial to its end."""

import json
import os
import sys

from .. import libc, wire
from ..gpu import devices
from ..probes import cgroup
from . import child, hello
from .command_steps import CommandWatch
from .program import ProgramWatch
from .script import ScriptWatch


def main(root):
    """Run ROOT/job.json; return 0 if `done` could be sent, else 1."""
    with open(os.path.join(root, "job.json"), encoding="utf-8") as file:
        job = json.load(file)
    child.set_oom_score(-500)
    libc.adopt_orphans()
    outbox = wire.Outbox(1, job["marker"])
    gpus = devices.find_gpus()
    if devices.visible_cards(gpus.cards, os.environ):
        # Otherwise TensorFlow reserves nearly all GPU memory immediately, and its figures mean nothing.
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    outbox.send("hello", **dict(hello.facts(job["environment"], os.environ, cgroup.find_cgroup()), **gpus.facts()))
    kind = CommandWatch if job["command"] else ProgramWatch if job.get("program") else ScriptWatch
    kind(job, root, outbox, gpus).run()
    if outbox.pending:
        sys.stderr.write("the harness did not read all messages of the agent\n")
    return 1 if outbox.pending else 0
