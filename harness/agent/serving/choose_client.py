"""Runs what sends the requests to the server under test: the agent's own client, or one of the user's."""

import os
import resource
import sys

from .. import samples
from . import client, generator, scripted


def run(root, words):
    """Send requests and return the exit code."""
    for word in words[:3]:
        os.set_inheritable(int(word), False)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each request that is on its way has a descriptor
    serve = samples.read_job(root)["serve"]
    if serve.get("script"):
        return scripted.Scripted(root, words).run()
    if serve.get("generator"):
        return generator.Generator(root, words).run()
    sys.setswitchinterval(1.0)
    return client.Client(root, words).run()
