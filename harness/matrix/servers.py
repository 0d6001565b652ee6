"""Checks the keys of a scenario that is a server: its port, its requests and their load."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness import model
from harness.matrix.context import Context, KeyPath
from harness.model.forms import shown

KEYS = ("port", "tls", "ready", "request", "requests", "client", "request_timeout")
SENDERS = ("request", "requests", "client")
"""Keys of what sends requests, of which a server has one."""
MOST_REQUESTS, MOST_BYTES = 100_000, 64 << 20
"""Most lines and bytes of a file of requests."""
MOST_CONCURRENCY = 1024
"""Most requests on their way at a time."""
ADDRESS = ("{url}", "{port}")
"""Words by which a load generator finds the server."""
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
    _check_senders(scenario, key, context)
    words = (*scenario.serve, *(value for _, value in scenario.environment))
    has_place = any("{port}" in word for word in words)
    if scenario.port is not None and has_place:
        context.add((*key, "port"), "a word of the server has {port}, which is a free port; leave one of them out")
    if scenario.port is None and not has_place:
        where = "write {port} in its arguments or its environment, or, if it runs in containers, give port: 8000"
        context.add((*key, "serve"), f"say on which port it listens: {where}")
    if scenario.ready.http and scenario.ready.line:
        context.add((*key, "ready"), "give one of http and line")
    _check_path(scenario.ready.http, (*key, "ready", "http"), context)
    for number, request in enumerate(scenario.request):
        _check_request(
            request, (*key, "request", *([number] if isinstance(written.get("request"), list) else [])), context
        )
    for place, text in _wrong_loads(scenario) if not scenario.generator else ():
        context.add((*key, "params", *place), text)
    if scenario.requests is not None and context.existing((*key, "requests")) is not None:
        _check_file(scenario.requests, (*key, "requests"), context)


def _check_file(path: Path, key: KeyPath, context: Context) -> None:
    """Check the requests in a file; only its first wrong line is told."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        context.add(key, f"{path} cannot be read: {error.strerror}")
        return
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(text) > MOST_BYTES or not 0 < len(lines) <= MOST_REQUESTS:
        context.add(key, f"{path.name} must have 1 to {MOST_REQUESTS:,} lines, and at most {MOST_BYTES >> 20} MiB")
        return
    reader = TypeAdapter(model.Request)
    for number, line in lines:
        if problem := _problem(line, reader, context):
            context.add(key, f"{path.name}:{number}: {problem}")
            return


def _problem(line: bytes, reader: TypeAdapter[model.Request], context: Context) -> str:
    """Return what is wrong with a line of a file of requests; "" if nothing is."""
    example = 'a line is a request, such as {"post": "/generate", "json": {"prompt": "hello"}}'
    try:
        found = json.loads(line)
        if not isinstance(found, dict):
            return example
        request = reader.validate_python(found, context=context.folder)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}; {example}"
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}; {example}"
    own = replace(context, data={"": found}, lines={(): 1}, found=[])
    _check_request(request, ("",), own)
    return str(own.found[0][1]).partition(": ")[2].lstrip(". ") if own.found else ""


def _check_senders(scenario: model.Scenario, key: KeyPath, context: Context) -> None:
    """Check that one key says what is sent, and who reads the numbers."""
    written = context.written(*key)
    for name, others in {"printed": "a program, a module, ", "results": ""}.items() if not scenario.generator else ():
        if name in written:
            text = f"is for {others}a command or a load generator; the replies of a server are read"
            context.add((*key, name), text)
    given = [name for name in SENDERS if name in written]
    if not given:
        context.add(key, "needs the requests to send: request: {get: /path}")
    for name in given[1:]:
        context.add((*key, name), f"sends requests, as {given[0]} does; give one of them")
    if scenario.generator and not any(name in word for word in scenario.generator for name in ADDRESS):
        context.add((*key, "client"), "does not say where the server is: write {url} or {port} in a word")


def _check_path(path: str | None, place: KeyPath, context: Context) -> None:
    if path is not None and not PATH.fullmatch(path):
        context.add(place, f"{shown(path)} is not a path of a URL; write one such as /health")


def _check_request(request: model.Request, place: KeyPath, context: Context) -> None:
    if (request.get is None) == (request.post is None):
        context.add(place, "give either get or post, such as {get: /path}")
    if request.json_text is not None and request.body is not None:
        context.add(place, "give either json or body, not both")
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
    """Check that servers can listen: several are alive together, and their hosts may share the ports of a machine."""
    for scenario in (each for each in scenarios if each.serve):
        for host in hosts:
            if scenario.hosts and host.name not in scenario.hosts:
                continue
            place = ("scenarios", scenario.name)
            if host.can.spans_machines:
                text = (
                    f"a server runs on one node, but a launch on {host.name} has several; name other hosts with hosts:"
                )
                context.add((*place, "serve"), text)
            elif host.can.lacks_loopback and not scenario.network:
                text = f"a container on {host.name} has no address of its own without a network; write network: true"
                context.add((*place, "serve"), text)
            elif scenario.port is not None and (host.can.sees_ports or host.can.lacks_loopback):
                why = f"servers on {host.name} share its ports, and several are alive together"
                context.add((*place, "port"), f"{why}; write {{port}} among its arguments")
