"""A small HTTP server, which puts the headers of each request into a MultiDict, as aiohttp does."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from multidict import MultiDict

HEADERS = {f"X-Header-{number}": f"value {number}" for number in range(30)}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # a reply in one piece
    disable_nagle_algorithm = True

    def do_GET(self):
        self.answer({"status": "ready"})

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = MultiDict({**HEADERS, **dict(self.headers)})
        self.answer({"total": sum(len(headers.popone(name)) for name in HEADERS)})

    def answer(self, reply):
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
