"""Sends requests by a user's own script: its `setup(url)` returns `request()`, of which each call is a request.

Each request that is on its way has a thread of its own, in which `setup` was called, so that it has its own connection.
`request` may return numbers, as a step does, or an iterator over the parts of a streamed reply. An exception is a
request that failed, after which `setup` is called again, because the connection may be broken; after a reply that is
too late, another thread calls it. One in the first call of `setup`, or a script that cannot be imported, is never the
server's fault.
"""

import os
import queue
import threading
from numbers import Real

from .. import ending
from ..scenario import script_run
from . import client
from .asked import params_taken

LONGEST = 100  # characters of a failure
REFUSALS = ("Connection refused", "ECONNREFUSED")


class Caller(object):
    """A thread that calls `request`, and puts (itself, why it failed, what it returned) into `done` after each call.

    `first_at`, `last_at` and `pieces` are those of the parts of a streamed reply. `replaces`: it takes the place of one
    whose reply was too late, and calls `setup` in its first request, as after one that failed.
    """

    def __init__(self, setup, done, clock, script, replaces=False):
        self.busy, self.started, self.until = False, 0.0, 0.0
        self.is_lost = False  # its reply was too late
        self.due_at = None  # when its request was due; None: when the call began
        self._setup, self._done, self._clock, self._script = setup, done, clock, script
        self._asked = queue.Queue()
        thread = threading.Thread(target=self._run, args=(replaces,))
        thread.daemon = True
        thread.start()

    def call(self):
        self.busy = True
        self._asked.put(None)

    def _run(self, replaces):
        try:
            request = None if replaces else self._setup()
        except BaseException as error:
            why = ending.describe_failure(error, "setup of the client", self._script)
            self._done.put((self, client.GaveUp(why), None))
            return
        if not replaces:
            self._done.put((self, "", None))
        while True:
            self._asked.get()
            self.first_at = self.last_at = None
            self.pieces, why, found = 0, "", None
            self.began = self._clock()
            try:
                request = request or self._setup()
                found = request()
                if hasattr(found, "__next__"):
                    found = self._streamed(found)
            except BaseException as error:
                request, why = None, self._told(error)
            self.ended = self._clock()
            self._done.put((self, why, found))

    def _streamed(self, parts):
        """Read all parts of a reply, and return the last one."""
        newest = None
        for newest in parts:  # noqa: B007 (it is returned)
            self.last_at = self._clock()
            self.first_at = self.first_at or self.last_at
            self.pieces += 1
        return newest

    def _told(self, error):
        text = ending.describe_failure(error, "request", self._script)
        if any(word in text for word in REFUSALS):
            return client.REFUSED
        return text.strip().split("\n")[-1].replace("request: ", "", 1)[:LONGEST]


class Scripted(client.Client):
    """The client whose requests a script makes."""

    def _prepare(self):
        self._done, self.kinds = queue.Queue(), []
        self._script = os.path.join(self.root, self.serve["script"])
        try:
            setup = script_run.loaded(self._script).setup
            params = params_taken(setup, self.job.get("params") or {})
        except BaseException as error:
            raise client.GaveUp(ending.describe_failure(error, "the client", self._script))
        self._setup = lambda: _callable(setup(self.url, **params))

    def _connection(self):
        caller = self._caller()
        while True:
            try:
                other, why, found = self._done.get(timeout=self._timeout_s)
            except queue.Empty:
                text = "setup of the client: it has not returned within %g s" % self._timeout_s
                raise client.Failed(text, hang=True) if self.steps else client.GaveUp(text)
            if isinstance(why, client.GaveUp):
                raise client.Failed(str(why)) if self.steps else why
            if other is caller:
                return caller
            self._ended(other, why, found)

    def _caller(self, **more):
        return Caller(self._setup, self._done, self.clock, self._script, **more)

    def _start(self, link, now):
        link.due_at = link.started if self._rate else None
        link.call()

    def _turn(self, most_s):
        try:
            link, why, found = self._done.get(timeout=most_s)
        except queue.Empty:
            self._end_late()
            return
        self._ended(link, why, found)

    def _end_late(self):
        now = self.clock()
        for link in [link for link in self._connections if link.busy and now >= link.until]:
            link.is_lost, link.busy = True, False
            place = self._connections.index(link)
            self._connections[place] = other = self._caller(replaces=True)
            self._fail(other, "no reply within %g s" % self._timeout_s, timed_out=True)

    def _ended(self, link, why, found):
        if link.is_lost:
            return
        link.busy = False
        if why:
            self._fail(link, why)
            return
        if link.first_at is None and isinstance(found, Real) and not isinstance(found, bool):
            found = {"items": found}
        began = link.began if link.due_at is None else link.due_at
        self._succeeded(link, began, link.ended, link, dict(found) if isinstance(found, dict) else {})


def _callable(request):
    """Return what `setup` returned, if it can be called for each request."""
    if not callable(request):
        text = "it must return a function that sends a request; it returned %s"
        raise ending.ScenarioError(text % type(request).__name__)
    if hasattr(request, "__code__") and request.__code__.co_flags & script_run.AWAITS:
        raise ending.ScenarioError("request is async, so a call sends nothing; let it run its own event loop")
    return request
