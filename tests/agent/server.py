"""A server on sockets alone, whose faults its arguments name: python server.py PORT [FAULT]."""

import os
import signal
import socket
import ssl
import sys
import threading
import time
from pathlib import Path

PORT, FAULT = int(sys.argv[1]), (sys.argv[2:] or [""])[0]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n" + b'{"score": 42}'
REPLIES = {
    "garbage": b"\x00\xffhello\r\n\r\n",
    "http2": b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\x40\0\0",  # SETTINGS, as grpcio begins
    "redirects": b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n",
    "half": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
    "closes": OK,
    "cgi": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\n\n" + b'{"score": 42}',  # as busybox httpd passes it on
    "untyped": b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n" + b'{"score": 42}',
}
COUNTED = threading.Lock()
made = 0
kept = []
SECURE = Path("own.pem").exists() and ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
if SECURE:
    SECURE.load_cert_chain("own.pem")


def answer(link):
    global made  # noqa: PLW0603 (a program)
    if SECURE:
        try:
            link = SECURE.wrap_socket(link, server_side=True)
        except OSError:
            return
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while link.recv(65536):
        with COUNTED:
            made += 1
        if FAULT == "dies" and made == 40:
            print("the model is gone", flush=True)
            os._exit(3)
        if FAULT == "leaks":
            kept.append(os.urandom(8192))
        if FAULT == "streams":
            link.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(4):
                time.sleep(0.002)
                link.sendall(b"a\r\ndata: tok\n\r\n")
            link.sendall(b"0\r\n\r\n")
            continue
        if (FAULT == "fails" and not made % 10) or (FAULT == "breaks" and made > 20):
            link.sendall(b"HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\noops")
            continue
        if FAULT == "drips" and made > 20:
            link.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                time.sleep(0.01)
                link.sendall(b"1\r\nx\r\n")
        if FAULT == "silent" or (FAULT == "hangs" and made > 20):
            time.sleep(100)
        link.sendall(REPLIES.get(FAULT, OK))
        if FAULT in ("half", "closes", "cgi", "untyped"):
            break
    link.close()


if FAULT == "ignores":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if FAULT == "aborts":
    signal.signal(signal.SIGTERM, lambda number, frame: os.abort())
if FAULT == "daemon" and os.fork():
    os._exit(0)
family, host = (socket.AF_INET6, "::1") if FAULT == "ipv6" else (socket.AF_INET, "127.0.0.1")
door = socket.socket(family)
door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
door.bind((host, PORT + (FAULT == "elsewhere")))
door.listen(64)
print("listening", flush=True)
while True:
    threading.Thread(target=answer, args=(door.accept()[0],), daemon=True).start()
