"""Checks the keys of a scenario that is a server: its port, its requests and their load."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from harness import model
from harness.matrix.problems import Context, KeyPath
from harness.model.forms import shown

KEYS = ("port", "ready", "request", "request_timeout")
MOST_CONCURRENCY = 1024
"""Most requests on their way at a time."""
PATH = re.compile(r"/[!-~]*")
HEADER, HEADER_VALUE = re.compile(r"[!#-'*+.^-z|~0-9A-Z-]+"), re.compile(r"[ -~\t]*")


def check_server(scenario: model.Scenario, key: KeyPath, context: Context) -> None:
    """Check the keys of a server, and that no other scenario has them. Problems are added to the context."""
    written = context.written(*key)
    if not scenario.serve:
        for name in KEYS:
            if name in written:
                context.add((*key, name), "is for a server; give serve: [its command]")
        return
    if "printed" in written:
        context.add((*key, "printed"), "is for a program, a module or a command; the replies of a server are read")
    if not scenario.request:
        context.add(key, "needs the requests to send: request: {get: /path}")
    words = (*scenario.serve, *(value for _, value in scenario.environment))
    if (scenario.port is None) != any("{port}" in word for word in words):
        text = "say on which port it listens: write {port} in its arguments or its environment, or give port: 8000"
        context.add((*key, "serve"), text if scenario.port is None else "has {port}, so leave out port")
    if scenario.ready.http and scenario.ready.line:
        context.add((*key, "ready"), "give one of http and line")
    _check_path(scenario.ready.http, (*key, "ready", "http"), context)
    for number, request in enumerate(scenario.request):
        _check_request(
            request, (*key, "request", *([number] if isinstance(written.get("request"), list) else [])), context
        )
    for place, text in _wrong_loads(scenario):
        context.add((*key, "params", *place), text)


def _check_path(path: str | None, place: KeyPath, context: Context) -> None:
    if path is not None and not PATH.fullmatch(path):
        context.add(place, f"{shown(path)} is not a path of a URL; write one such as /health")


def _check_request(request: model.Request, place: KeyPath, context: Context) -> None:
    if (request.get is None) == (request.post is None):
        context.add(place, "give one of get and post, such as {get: /path}")
    if request.json_text is not None and request.body is not None:
        context.add(place, "give one of json and body")
    if request.get is not None and (request.json_text or request.body) is not None:
        context.add(place, "a GET request has no body; use post")
    for name, value in request.headers:
        if not HEADER.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
            context.add((*place, "headers"), f"{shown(name)} is not a header's name, or its value is no plain text")
    _check_path(request.get or request.post, (*place, "get" if request.get else "post"), context)


def _wrong_loads(scenario: model.Scenario) -> Iterator[tuple[KeyPath, str]]:
    """Yield what is wrong with the params of the client: their place, and a text."""
    params = dict(scenario.params)
    for position, value in enumerate(params.get("rate", ())):
        try:
            model.rate_of(value)
        except ValueError as error:
            yield ("rate", position), str(error)
    for position, number in enumerate(params.get("concurrency", ())):
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MOST_CONCURRENCY:
            yield (
                ("concurrency", position),
                f"{shown(number)} is not a number of requests; write 1 to {MOST_CONCURRENCY}",
            )
    if all(name in params for name in model.LOAD):
        yield (), "has concurrency and rate; a rate says when requests come, so give one of them"


def check_ports(scenarios: Sequence[model.Scenario], hosts: Sequence[model.Host], context: Context) -> None:
    """Check that servers on a host whose trials share its ports can listen on any: several are alive together."""
    for scenario in scenarios:
        meant = [host for host in hosts if not scenario.hosts or host.name in scenario.hosts]
        if scenario.serve and (queued := [host.name for host in meant if host.can.queues]):
            text = f"{queued[0]} is a queue; servers run on engines docker and process; name their hosts with hosts:"
            context.add(("scenarios", scenario.name, "serve"), text)
        shared = [host.name for host in meant if host.can.sees_ports]
        if scenario.serve and scenario.port is not None and shared:
            text = f"servers on {shared[0]} share its ports, and several are alive together; write {{port}} in serve"
            context.add(("scenarios", scenario.name, "port"), text)
