"""Sends requests to the server under test, and times them: each request is a step.

It runs in a process of its own, in the interpreter that runs the agent, and fills the shared table: a row is a request
in the order in which they end. Its events are those of a script (scenario/script_run.py), and

    {"type": "waiting", "why": "…"}                  why the server is not ready, whenever that changes
    {"type": "ready", "setup_s": …, "first_step_s": …, "address": "127.0.0.1"}     it waits
    {"type": "ended", "end": …, "errors": [["HTTP 500", 12], …]}                   it waits; then it ends
    {"type": "failed", "setup": true, "hang": false, "message": "…"}
    {"type": "gave_up", "message": "…"}              this client, or the user's own, cannot send requests
    {"type": "broken", "message": "…"}               a bug of this client

In a closed loop, `concurrency` requests are on their way at any time. With a `rate`, requests begin at the times of a
Poisson process, whatever the server does, and a request's time counts from the moment at which it was due.
"""

import collections
import contextlib
import errno
import json
import os
import random
import select
import socket
import time
import traceback
from numbers import Real

from .. import result_names, samples
from ..probes import processes
from ..scenario import script_run, stepping
from . import http
from .asked import at_path, picked, request_of

FIRST_PAUSE_S, LONGEST_PAUSE_S, PROBE_S = 0.002, 0.02, 5.0
FIRST_FAILURES, FIRST_TIMEOUTS = 5, 2
"""Requests that may fail before the first that succeeds."""
FAILURES, TIMEOUTS = 100, 3
"""Requests in a row that may fail later, and those that get no reply for each that is on its way."""
IDLE_S = 1.0
"""After so long, a server may close a connection that it keeps alive."""
MOST_CONNECTIONS = 256
MOST_KINDS = 20
TURN_S = 0.1
FLOOR_S = 20e-6
"""What reading the memory of the server may cost after each request, as in the steps of a script."""
PIDS_S = 0.25
"""After so long, the server may have other processes."""
MOST_READ_BYTES = 16 << 10
"""Size of the largest JSON reply whose numbers are read."""
NOT_READY = (502, 503)
REFUSED, REFUSED_PAUSE_S = "connection refused", 0.01
CLOSED = (http.NO_REPLY, os.strerror(errno.ECONNRESET))
MAY_BE_TLS = "; if it speaks TLS, write `tls: true`, or give --tls"


class Failed(Exception):
    """The server does not answer as it should; the text says how."""

    def __init__(self, message, hang=False):
        Exception.__init__(self, message)
        self.hang = hang


class GaveUp(Exception):
    """A client cannot send requests; the text says why. That is not the server's fault."""


class Kind(object):
    """One kind of request: what is sent, and what is expected."""

    def __init__(self, written, host):
        body = written.get("body")
        headers = {"Host": host, "User-Agent": "harness", "Accept": "*/*"}
        if body is not None:
            body = body.encode("utf-8")
            headers["Content-Length"] = str(len(body))
        headers.update(written.get("headers") or {})
        lines = ["%s %s HTTP/1.1" % (written["method"], written["path"])]
        lines += ["%s: %s" % pair for pair in headers.items()]
        self.data = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + (body or b"")
        self.words = "%s %s" % (written["method"], written["path"])
        self.weight = written.get("weight", 1)
        expect = written.get("expect") or {}
        self._status, self._text, self._json = expect.get("status"), expect.get("text"), expect.get("json")

    def problem(self, reply):
        """Return why the reply is not what is expected; "" if it is."""
        status = reply.status
        if status != self._status if self._status else not 200 <= status < 300:
            place = reply.headers.get("location")
            said = "to %s" % place[:80] if place and 300 <= status < 400 else _first_line(reply.text)
            return ("HTTP %d %s" % (status, said)).strip()
        if self._text is not None and self._text.encode("utf-8") not in reply.text:
            return "the reply does not contain %r: %s" % (self._text[:40], _first_line(reply.text) or "it is empty")
        if self._json is not None:
            found = _json_of(reply)
            for path, value in self._json.items():
                own = at_path(found, path)
                if own != value:
                    return "%s in the reply is %s" % (path, json.dumps(own)[:60] if own is not None else "missing")
        return ""


def _first_line(text):
    return text[:200].decode("utf-8", "replace").strip().split("\n")[0][:80]


def _json_of(reply):
    try:
        return json.loads(reply.text.decode("utf-8"))
    except (ValueError, RecursionError):
        return None


class Numbers(object):
    """Reads the results in a JSON reply: {"usage": {"score": 1}} has the number `usage.score`."""

    def __init__(self):
        self._known = {}

    def of(self, reply):
        kind = reply.headers.get("content-type")
        is_json = reply.text.startswith(b"{") if kind is None else "json" in kind
        if reply.is_stream or reply.size > MOST_READ_BYTES or not is_json:
            return {}
        found, result = _json_of(reply), {}
        for name, value in found.items() if isinstance(found, dict) else ():
            if isinstance(value, dict):
                for inner, number in value.items():
                    self._add(result, "%s.%s" % (name, inner), number)
            else:
                self._add(result, name, value)
        return result

    def _add(self, result, name, value):
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return
        is_result = self._known.get(name)
        if is_result is None and len(self._known) < 1000:
            is_result = self._known[name] = bool(result_names.worse_if(name))
        if is_result:
            result[name] = value


class Client(object):
    """One client, from the first try to connect to the last reply. `words`: the descriptors of events, answers and the
    table, the port, and when the server was started."""

    _tells_kinds = False  # whether the kind of a request is told when it fails

    def __init__(self, root, words):
        self.root = root
        events_fd, answers_fd, table_fd, self._port = map(int, words[:4])
        self._began = float(words[4])
        self.job = samples.read_job(root)
        self.serve = self.job["serve"]
        self.table = samples.Table(table_fd, *samples.shape(self.job["looks"][-1]))
        self.header = self.table.header
        self.link = script_run.Link(events_fd, answers_fd, self.header)
        self.clock = time.perf_counter
        self.steps = self.failures = self.timeouts = 0
        self.errors = collections.Counter()
        self._counts = True
        self._is_first, self._has_timed_out, self._why = False, False, None  # of the newest request
        self._until = self.job["looks"][0]  # the step of the next look, before which no more requests count
        self._stride, self._rows = self.table.stride, self.table.rows
        names = ("step_s", "first_token_s", "token_s", "failed")
        self._columns = [self.table.column(samples.COLUMNS.index(name)) for name in names]
        self._sizes, self._pids_until = processes.Sizes(), 0.0
        processes.OURS.add(os.getpid())
        rss, self._anon_kib = (self.table.column(samples.COLUMNS.index(name)) for name in ("rss_kib", "anon_kib"))
        self._row = 0
        self._probe = stepping.cost_limited(self._resident_kib, rss, FLOOR_S)
        self._metrics = stepping.Metrics(self.table, lambda name: self.link.tell("metric", name=name))
        self._numbers = Numbers()
        self._timeout_s = self.serve["timeout_s"]
        self._concurrency, self._rate = self.serve["concurrency"], self.serve["rate"]
        self._random = random.Random(self.serve["seed"])
        self._late_at = 0.0  # when to look next for replies that are too late
        self._tls = None
        if self.serve.get("tls"):
            from . import tls

            self._tls, self._context = tls, tls.context()

    def run(self):
        try:
            self._wait_until_ready()
            self._prepare()
            self._measure()
        except GaveUp as error:
            self.link.tell("gave_up", message=str(error))
        except Failed as error:
            self.link.tell("failed", setup=not self.steps, hang=error.hang, message=str(error))
        except Exception as error:  # a bug of this client, which must not count against the image
            text = "%sthe client failed: %r" % (traceback.format_exc(), error)
            self.link.tell("broken", message=text)
        return 0

    # -------------------------------------------------------------- readiness

    def _wait_until_ready(self):
        """Return when the server is ready. The supervisor decides how long that may take."""
        ready, pause_s, told = self.serve["ready"], FIRST_PAUSE_S, ""
        while True:
            for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
                why = self._try(family, host, ready.get("http"))
                if not why:
                    self.address = family, (host, self._port)
                    self.place = ("[%s]:%d" if ":" in host else "%s:%d") % (host, self._port)
                    self.url = ("https://" if self._tls else "http://") + self.place
                    return
                if why != "refused":
                    break
            if why != told:
                told = why
                self.link.tell("waiting", why="" if why == "refused" else why)
            time.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, pause_s * 1.2)

    def _try(self, family, host, path):
        """Return why the server is not ready, "" if it is."""
        try:
            with contextlib.ExitStack() as ends:
                link = ends.enter_context(socket.socket(family, socket.SOCK_STREAM))
                link.settimeout(PROBE_S)
                link.connect((host, self._port))
                if path is None:
                    return ""
                if self._tls:
                    link = ends.enter_context(self._context.wrap_socket(link))
                written = {"method": "GET", "path": path, "headers": {"Connection": "close"}}
                link.sendall(Kind(written, "localhost:%d" % self._port).data)
                reply = http.Reply()
                while not reply.is_over:
                    data = link.recv(http.READ_BYTES)
                    if data:
                        reply.feed(data, 0.0)
                    else:
                        reply.end()
        except ConnectionRefusedError:
            return "refused"
        except socket.timeout:
            return "no reply within %g s" % PROBE_S
        except (OSError, http.Bad) as error:
            if getattr(error, "errno", None) in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                return "refused"  # this machine has no IPv6
            return self._tls.told(error) if self._tls and isinstance(error, self._tls.ssl.SSLError) else str(error)
        return "" if 200 <= reply.status < 400 else "GET %s: HTTP %d" % (path, reply.status)

    # -------------------------------------------------------------- requests

    def _prepare(self):
        """Prepare what sends the requests, once the server is ready."""
        asked = self.serve["requests"]
        if self.serve.get("file"):
            with open(os.path.join(self.root, self.serve["file"]), encoding="utf-8-sig") as file:
                asked = [request_of(json.loads(line), self.job.get("params") or {}) for line in file if line.strip()]
        self.kinds = [Kind(each, self.place) for each in asked]
        self._tells_kinds = len({kind.words for kind in self.kinds}) > 1
        self._picked = picked(self.kinds, [kind.weight for kind in self.kinds], self._random)
        self._poll, self._by_fd = select.epoll(), {}

    def _measure(self):
        self._idle, self._busy = [], 0
        self._connections = []
        self._grow()
        setup_s, first_s = self._first()
        self.link.ask("ready", setup_s=setup_s, first_step_s=first_s, address=self.address[1][0])
        left, is_whole = samples.DueLooks(self.job), False
        self._busy_s = 0.0
        while True:
            self._load(left)
            stop = self.header[samples.STOP]
            if stop == samples.PARK:
                self.link.ask("parked")
                continue
            is_whole = self._is_due(left) and left.take(self.steps, self._busy_s)
            if stop or is_whole or self.link.ask("look", step=self.steps, last=False) == "stop":
                break
        self.link.ask("look", step=self.steps, last=True)
        errors = self.errors.most_common(MOST_KINDS)
        self.link.ask("ended", end="completed" if is_whole else "stopped", errors=errors)

    def _first(self):
        """Send requests until one succeeds. Return when the server was ready, and the time of that request."""
        failures = timeouts = 0
        while True:
            began = self.clock()
            self._is_first, self._why = True, None
            self._begin(began, began)
            while self._why is None:
                self._turn(TURN_S)
            if not self._why:
                self._is_first = False
                return began - self._began, self.clock() - began
            is_early = self._why == REFUSED or any("HTTP %d" % code in self._why for code in NOT_READY)
            failures += not is_early
            timeouts += self._has_timed_out
            if failures >= FIRST_FAILURES or timeouts >= FIRST_TIMEOUTS:
                hint = MAY_BE_TLS if self._why in CLOSED and not self._tls else ""
                raise Failed("no request succeeded: %s%s" % (self._why, hint))
            self.link.tell("waiting", why=self._why)
            time.sleep(TURN_S)

    def _load(self, left):
        """Send requests until a look is due, or until the supervisor asks for something."""
        began, before_s, header = self.clock(), self._busy_s, self.header
        header[samples.STARTED], self._until = began, left.step
        due_at = began + (self._random.expovariate(self._rate) if self._rate else 0.0)
        while not (header[samples.STOP] or self._is_due(left)):
            now = self.clock()
            if self._rate:
                while due_at <= now and (self._idle or self._grow()):
                    self._begin(now, due_at)
                    due_at += self._random.expovariate(self._rate)
                pause_s = max(0.0, due_at - now) if self._idle or self._grow() else TURN_S
            else:
                while self._busy < self._concurrency and (self._idle or self._grow()):
                    self._begin(now, now)
                pause_s = TURN_S
            self._turn(min(TURN_S, pause_s))
            header[samples.BUSY_S] = self._busy_s = before_s + self.clock() - began
        # While one slice ends, those on their way still count, or the slow ones would be missing; else the next look
        # would not be at its step.
        self._counts = header[samples.STOP] == samples.PARK
        while self._busy and header[samples.STOP] != samples.END:
            self._turn(TURN_S)
        self._counts = True
        header[samples.BUSY_S] = self._busy_s = before_s + self.clock() - began

    def _is_due(self, left):
        """Return whether the next look is due. After a request without a reply, others show whether all lack one."""
        return left.due(self.steps, self._busy_s) and not self.timeouts

    def _grow(self):
        """Add a connection; return whether there may be one more."""
        if len(self._connections) >= max(MOST_CONNECTIONS, self._concurrency):
            return False
        self._connections.append(self._connection())
        self._idle.append(self._connections[-1])
        return True

    def _connection(self):
        """Return another one that can send requests."""
        if self._tls:
            return self._tls.TlsConnection(self.address, self._poll, self._context)
        return http.Connection(self.address, self._poll)

    def _begin(self, now, started):
        link = self._idle.pop()
        link.started, link.until = started, now + self._timeout_s
        self._busy += 1
        self._start(link, now)

    def _start(self, link, now):
        link.kind = next(self._picked)
        self._send(link, now)

    def _send(self, link, now):
        is_new = link.fd < 0
        try:
            link.send(link.kind.data)
            if is_new:
                self._by_fd[link.fd] = link
        except OSError as error:
            self._lost(link, error, now)

    def _turn(self, most_s):
        """Handle what has come; wait for it up to `most_s`."""
        if self._rate:  # epoll waits for whole milliseconds, by which requests would begin late
            select.select([self._poll], [], [], most_s)
            most_s = 0.0
        came = self._poll.poll(most_s)
        for fd, event in came:
            link = self._by_fd[fd]
            if link.fd != fd:
                continue
            try:
                if event & select.EPOLLOUT and link.busy:
                    link.write_rest()
                now = link.read(self.clock) if event & ~select.EPOLLOUT else None
            except http.Bad as error:
                link.close()
                self._fail(link, str(error))
                continue
            except OSError as error:
                self._lost(link, error, self.clock())
                continue
            if now is not None and link.busy and link.reply.is_over:
                self._answered(link, now)
        if not came or self.clock() >= self._late_at:  # a reply may come in pieces without an end
            self._late_at = self.clock() + TURN_S
            self._end_late()

    def _end_late(self):
        """End the requests whose replies are too late."""
        now = self.clock()
        for link in [link for link in self._connections if link.busy and now >= link.until]:
            link.close()
            why = "no end of the reply within %g s" if link.reply.has_begun else "no reply within %g s"
            self._fail(link, why % self._timeout_s, timed_out=True)

    def _lost(self, link, error, now):
        """Send a request again whose connection the server had closed, as it may after a reply; else it has failed."""
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise GaveUp("this client may open no more connections: %s" % os.strerror(error.errno))
        may_be_old = link.used == 1 or (link.used > 1 and now - link.idle_since > IDLE_S)
        again = link.busy and may_be_old and not (link.reply and link.reply.has_begun)
        link.close()
        if again:
            link.used = 0
            self._send(link, now)
        else:
            refused = isinstance(error, ConnectionRefusedError)
            self._fail(link, REFUSED if refused else error.strerror or str(error))

    # -------------------------------------------------------------- replies

    def _answered(self, link, now):
        reply = link.reply
        problem = link.kind.problem(reply)
        link.idle_since = now
        link.release(now)
        if problem:
            self._fail(link, problem)
            return
        self._succeeded(link, link.started, now, reply if reply.is_stream else None, self._numbers.of(reply))

    def _succeeded(self, link, began, ended, streamed, numbers):
        """Count a request that succeeded. `streamed`: what has `first_at`, `last_at` and `pieces` if its reply was."""
        self._idle.append(link)
        self._busy -= 1
        self._why, self.failures, self.timeouts = "", 0, 0
        took_s, first_s, token_s = max(ended - began, stepping.LEAST_S), None, None
        if streamed is not None and streamed.first_at is not None:
            first_s = streamed.first_at - began
            if streamed.pieces > 1:
                token_s = (streamed.last_at - streamed.first_at) / (streamed.pieces - 1)
        self._step(ended, (took_s, first_s, token_s, 0.0), numbers)

    def _fail(self, link, why, timed_out=False):
        self._idle.append(link)
        self._busy -= 1
        self._why, self._has_timed_out = why, timed_out
        self._counts = self._counts or timed_out  # it is not only late
        if self._is_first or not self._counts:
            return
        told = "%s: %s" % (link.kind.words, why) if self._tells_kinds else why
        self.errors[told if told in self.errors or len(self.errors) < MOST_KINDS else "other"] += 1
        self.failures, self.timeouts = self.failures + 1, self.timeouts + 1 if timed_out else 0
        if self.header[samples.STOP] != samples.END:
            self._step(self.clock(), (None, None, None, 1.0), {})
        if self.timeouts >= TIMEOUTS * self._concurrency:
            raise Failed("%d requests in a row failed: %s" % (self.timeouts, why), hang=True)
        if why == REFUSED:
            time.sleep(REFUSED_PAUSE_S)  # it may just have died
        if self.failures >= FAILURES:
            raise Failed("%d requests in a row failed: %s" % (self.failures, why))

    def _step(self, now, values, numbers):
        if not self._counts or self.steps >= self._until:
            return
        self.steps = number = self.steps + 1
        row = (number - 1) // self._stride
        if row < self._rows:
            for place, column in enumerate(self._columns):
                if values[place] is not None:
                    column[row] = values[place]
            if not self._rate:  # by Little's law, items by their time are requests, or what each has, by the time
                own = numbers.get("items", 1)
                numbers["items"] = self._concurrency * own if isinstance(own, Real) else own
            self._metrics.record(row, number, numbers)
            if not number % self._stride:
                self._row = row
                self._probe(row, now - self.header[samples.STARTED])
        self.header[samples.STARTED] = now
        self.header[samples.STEPS] = number

    def _resident_kib(self):
        """Return the resident memory of the server's processes, which are the supervisor's. Record how much of it is
        anonymous."""
        now = self.clock()
        if now >= self._pids_until:
            self._sizes.watch(processes.descendants(os.getppid()))
            self._pids_until = now + PIDS_S
        resident_kib, anonymous_kib = self._sizes.memory_kib()
        if not resident_kib:
            return float("nan")
        self._anon_kib[self._row] = anonymous_kib
        return resident_kib
