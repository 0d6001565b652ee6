"""Speaks HTTP/1.1 over one connection without blocking, and reads whatever comes back.

A server under test may answer anything, so that every part of a reply has a limit.
"""

import errno
import os
import re
import select
import socket

KEPT_BYTES = 64 << 10  # of the body of a reply
MOST_HEAD_BYTES = 64 << 10
MOST_BODY_BYTES = 256 << 20
READ_BYTES = 1 << 16
STREAMS = ("text/event-stream", "application/x-ndjson", "application/jsonl")
EMPTY = (204, 304)
END_OF_HEAD = re.compile(b"\r?\n\r?\n")  # RFC 9112, 2.2: a line may end with LF alone, as in what CGI programs print
NO_REPLY = "the connection was closed without a reply"
TLS_ALERT = b"\x15\x03"  # what a server that speaks TLS answers to anything else
HTTP_2 = b"\x04\0\0\0\0\0"  # SETTINGS, with which a server that speaks HTTP/2 begins, after the length of the frame
ONLY_HTTP_2 = "the server speaks only HTTP/2, and this client HTTP/1.1; use a client of your own"


class Bad(Exception):
    """A reply that breaks the rules of HTTP or a limit; the text says which."""


class Reply(object):
    """One reply. `first_at` and `last_at`: when the first and the last part of its body came; `pieces`: how many parts
    it has, `text`: its first KEPT_BYTES; `closes`: the connection is not used again."""

    def __init__(self):
        self.status, self.headers, self.text = 0, {}, b""
        self.size = self.pieces = 0
        self.first_at = self.last_at = None
        self.is_over = self.closes = self.is_stream = self.has_begun = False
        self._rest = b""
        self._left = None  # bytes of the body, or of a chunk; None: all that comes before the connection is closed
        self._read = self._read_head

    def feed(self, data, now):
        """Read more of the reply, which came at `now`. Raises Bad."""
        self.has_begun = True
        data, self._rest = self._rest + data, b""
        while data and not self.is_over:
            data = self._read(data, now)
        if data:
            self.closes = True  # more than a reply: what follows cannot be trusted

    def end(self):
        """Note that the connection was closed. Raises Bad if the reply is not complete."""
        if self._read != self._read_body or self._left is not None:
            raise Bad("the connection was closed in the middle of the reply, after %d bytes" % self.size)
        self.is_over = True

    def _wait_for_more(self, data, part):
        """Keep the beginning of a part of the reply that has no body, until the rest of it comes."""
        if len(data) > MOST_HEAD_BYTES:
            raise Bad("the %s of the reply is longer than %d KiB" % (part, MOST_HEAD_BYTES >> 10))
        self._rest = data
        return b""

    def _read_head(self, data, now):
        if not b"HTTP/1.".startswith(data[:7]):
            raise Bad(_other(data))
        end = END_OF_HEAD.search(data)
        if end is None:
            return self._wait_for_more(data, "head")
        head, rest = data[: end.start()], data[end.end() :]
        known = KNOWN_HEADS.get(head)
        if known is None:
            known = _parsed(head)
            if len(KNOWN_HEADS) >= MOST_KNOWN:
                KNOWN_HEADS.clear()
            KNOWN_HEADS[head] = known
        self.status, self.headers, self.closes, self.is_stream, is_chunked = known
        if 100 <= self.status < 200:
            return rest
        if self.status in EMPTY:
            self.is_over = True
        elif is_chunked:
            self._read = self._read_chunk_size
        else:
            self._read = self._read_body
            length = self.headers.get("content-length")
            if length is None:
                self.closes = True
            elif not length.isdigit():
                raise Bad("the reply's Content-Length is %r" % length[:40])
            else:
                self._left = int(length)
                self.is_over = not self._left
        return rest

    def _read_body(self, data, now):
        self.pieces += 1
        if self._left is None:
            self._take(data, now)
            return b""
        self._take(data[: self._left], now)
        rest, self._left = data[self._left :], max(0, self._left - len(data))
        self.is_over = not self._left
        return rest

    def _read_chunk_size(self, data, now):
        end = data.find(b"\r\n")
        if end < 0 and len(data) < 1024:
            self._rest = data
            return b""
        try:
            self._left = int(data[: max(0, end)].partition(b";")[0], 16)
        except ValueError:
            raise Bad("a chunk of the reply has no size")
        if self._left:
            self.pieces += 1
        self._read = self._read_chunk if self._left else self._read_trailer
        return data[end + 2 :]

    def _read_chunk(self, data, now):
        self._take(data[: self._left], now)
        rest, self._left = data[self._left :], max(0, self._left - len(data))
        if not self._left:
            self._read = self._read_chunk_end
        return rest

    def _read_chunk_end(self, data, now):
        if len(data) < 2:
            self._rest = data
            return b""
        if data[:2] != b"\r\n":
            raise Bad("a chunk of the reply is longer than its size")
        self._read = self._read_chunk_size
        return data[2:]

    def _read_trailer(self, data, now):
        end = data.find(b"\r\n")
        if end < 0:
            return self._wait_for_more(data, "trailer")
        self.is_over = not end
        return data[end + 2 :]

    def _take(self, data, now):
        if self.first_at is None:
            self.first_at = now
        self.last_at = now
        self.size += len(data)
        if self.size > MOST_BODY_BYTES:
            raise Bad("the reply is longer than %d MiB" % (MOST_BODY_BYTES >> 20))
        if len(self.text) < KEPT_BYTES:
            self.text += data[: KEPT_BYTES - len(self.text)]


KNOWN_HEADS, MOST_KNOWN = {}, 16
"""What the newest heads say: most replies of a server within a second have the same."""


def _other(data):
    """Return what a reply is that does not begin as one of HTTP/1."""
    if data[:2] == TLS_ALERT:
        return "the server speaks TLS; write `tls: true`, or give --tls"
    return ONLY_HTTP_2 if data[3:9] == HTTP_2 else "the reply is not HTTP: it begins with %r" % bytes(data[:40])


def _parsed(head):
    """Return the status and the headers of a head, whether the connection is not used again, and whether the reply is
    streamed and in chunks. Raises Bad."""
    first, *lines = head.decode("latin-1").replace("\r\n", "\n").split("\n")
    words = first.split(None, 2)
    try:
        status = int(words[1])
    except (IndexError, ValueError):
        raise Bad("the reply is not HTTP: it begins with %r" % first[:40])
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    connection = headers.get("connection", "").lower()
    closes = "close" in connection or (words[0] == "HTTP/1.0" and "keep-alive" not in connection)
    is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
    is_stream = is_chunked or headers.get("content-type", "").startswith(STREAMS)
    return status, headers, closes, is_stream, is_chunked


class Connection(object):
    """A connection to `address`, a pair of family and address, which `poll`, an epoll, watches. `busy`: a reply is
    awaited. `used`: replies that came over it. `kind` and `started` are the caller's."""

    def __init__(self, address, poll):
        self.busy, self.kind, self.started, self.until = False, None, 0.0, 0.0
        self.used, self.idle_since = 0, 0.0
        self.reply = None
        self.fd = -1
        self._address, self._poll = address, poll
        self._socket, self._out, self._awaits_room = None, b"", False

    def send(self, data):
        """Send a request, over a new connection if there is none. Raises OSError."""
        self.busy, self.reply, self._out = True, Reply(), data
        if self._socket is None:
            family, address = self._address
            self._socket = self._opened(family)
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.fd, self.used = self._socket.fileno(), 0
            problem = self._socket.connect_ex(address)
            self._poll.register(self.fd, select.EPOLLIN | select.EPOLLOUT)
            self._awaits_room = True
            if problem == errno.EINPROGRESS:
                return
            if problem:
                raise OSError(problem, os.strerror(problem))
        self._write()

    def write_rest(self):
        """Send what is left of the request. Raises OSError."""
        problem = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            raise OSError(problem, os.strerror(problem))
        self._write()

    def _opened(self, family):
        """Return a new socket."""
        return socket.socket(family, socket.SOCK_STREAM)

    def _write(self):
        sent = self._sent()
        self._out = self._out[sent or 0 :]
        if (bool(self._out) and sent is not None) != self._awaits_room:
            self._awaits_room = not self._awaits_room
            self._poll.modify(self.fd, select.EPOLLIN | (select.EPOLLOUT if self._awaits_room else 0))

    def _sent(self):
        """Send what can be sent at once, and return its size; None if more must be read before. Raises OSError."""
        try:
            return self._socket.send(self._out)
        except BlockingIOError:
            return 0

    def read(self, clock):
        """Read what has come. Return the time at which it came, None if nothing has; the connection is closed if the
        reply is over and the server will close it. Raises Bad, and OSError."""
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return None
        now = clock()
        if not self.busy:  # closed between two requests, or a reply that nobody asked for
            self.close()
        elif data:
            self.reply.feed(data, now)
        elif not self.reply.has_begun:
            raise ConnectionResetError(errno.ECONNRESET, NO_REPLY)
        else:
            self.reply.end()
        return now

    def release(self, now):
        """End the exchange, whose reply is over."""
        self.busy, self.idle_since = False, now
        self.used += 1
        if self.reply.closes or self._out:
            self.close()

    def close(self):
        self.busy, self._out = False, b""
        if self._socket is not None:
            self._socket.close()  # epoll forgets it
            self._socket, self.fd = None, -1
