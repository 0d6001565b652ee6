"""What a sweep sees of servers: six versions of a streaming server, four of which have a fault, and a quiet twin.

    python -m benchmarks.served                    the six versions
    python -m benchmarks.served --busy 2           with two busy processes beside
    python -m benchmarks.served --quiet            all six are the first version: no finding is right

Version 3 has a 99th percentile that is 30 % higher if eight requests are on their way, 4 keeps 2 KiB of each request, 5
answers 1 % of them with 500, and 6 takes 8 % longer to the first token. The versions are those of a small package, on
the process engine. Prints the findings and the time; exits with 1 if a fault is not named at its version.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.planted_series import six

VERSIONS = ("1.10.0", "1.11.0", "1.12.0", "1.13.0", "1.14.0", "1.15.0")
FAULTS = {("tail", "1.12.0"), ("memory", "1.13.0"), ("errors", "1.14.0"), ("first_token", "1.15.0")}
SERVER = """
import os, random, signal, socket, sys, threading, time

FAULT = os.environ["PLANTED_VERSION"]
FIRST_S, TOKEN_S, TOKENS, SLOW_S, SLOWER_S = 0.003, 0.00075, 4, 0.012, 0.0156
HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
PIECE = b"a\\r\\ndata: tok\\n\\r\\n"
LOCK, CHANCE, KEPT = threading.Lock(), random.Random(7), []
flying = made = 0

def answer(link):
    global flying, made
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while link.recv(65536):
        with LOCK:
            made, flying = made + 1, flying + 1
            number, are_many, is_slow = made, flying >= 4, CHANCE.random() < 0.03
        if FAULT == "1.14.0" and number % 100 == 0:
            link.sendall(b"HTTP/1.1 500 No\\r\\nContent-Length: 4\\r\\n\\r\\noops")
        else:
            stream(link, are_many, is_slow)
        with LOCK:
            flying -= 1

def stream(link, are_many, is_slow):
    if FAULT == "1.13.0":
        KEPT.append(os.urandom(2048))
    time.sleep(FIRST_S * (1.08 if FAULT == "1.15.0" else 1.0))
    token_s = TOKEN_S
    if is_slow:
        token_s = ((SLOWER_S if FAULT == "1.12.0" and are_many else SLOW_S) - FIRST_S) / TOKENS
    link.sendall(HEAD + PIECE)
    for number in range(TOKENS):
        time.sleep(token_s)
        link.sendall(PIECE if number < TOKENS - 1 else PIECE + b"0\\r\\n\\r\\n")

signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
door = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
while True:
    threading.Thread(target=answer, args=(door.accept()[0],), daemon=True).start()
"""
MATRIX = """
version: 1
series: {{server: {series}}}
scenarios:
  stream:
    serve: [python, server.py, "{{port}}"]
    files: [server.py]
    request: {{post: /generate, json: {{prompt: hello, stream: true}}}}
    params: {{concurrency: [1, 8]}}
    steps: {{first: 500, budget: 4000, time: 5s}}
    limits: {{tail: 15%, first_token: 5%}}
    timeout: 2m
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, default=0, help="so many busy processes beside")
    parser.add_argument("--quiet", action="store_true", help="no version has a fault")
    options = parser.parse_args()
    folder, begun = Path(tempfile.mkdtemp(prefix="served-")), time.monotonic()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    try:
        (folder / "server.py").write_text(SERVER)
        series = six(VERSIONS, **({"PLANTED_VERSION": VERSIONS[0]} if options.quiet else {}))
        (folder / "served.yaml").write_text(MATRIX.format(series=series))
        command = [sys.executable, "-m", "harness", "sweep", "served.yaml"]
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=False)
        found = json.loads((folder / "reports" / "served" / "latest" / "summary.json").read_text())["findings"]
    finally:
        for process in busy:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    named = set()
    for each in found:
        if each["kind"] != "first_fixed":
            named.add((each["metric"], each["first_bad"]))
            print(each["metric"], each["params"], each["last_good"], "→", each["first_bad"], each["effect"])
    wanted = set() if options.quiet else FAULTS
    print(f"{len(named & wanted)} of {len(wanted)} faults named, {len(named - wanted)} others", end="; ")
    print(f"{time.monotonic() - begun:.0f} s")
    return 0 if named == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
