"""The scenarios of the contract tests: one step of each kind."""

import multiprocessing
import os
import signal
import socket
import subprocess
import time
from multiprocessing import resource_sharer
from pathlib import Path

HERE = Path(__file__).resolve().parent


def setup(act="quiet", value=None):
    print("setup of", act)
    if act == "orphan":
        subprocess.Popen(["sleep", value], start_new_session=True)
    if act == "tell":
        tell(value)
    if act == "write":
        Path("runs/1").mkdir(parents=True)
        for name in ("runs/1/model.pt", "model.pt", __file__):
            Path(name).write_text("a checkpoint")
    if act == "home":
        Path("~/.cache").expanduser().mkdir()
    if act == "sockets":
        sockets()
    kept = []

    def step():
        if act == "slow":
            time.sleep(0.02)
        elif act == "clock":
            time.sleep(0.02)
            return {"at_s": time.time()}
        elif act == "raise":
            raise ValueError("planted")
        elif act == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif act == "abort":
            os.abort()
        elif act == "exit":
            os._exit(3)
        elif act == "hang":
            time.sleep(3600)
        elif act == "eat":
            kept.append(b"x" * (16 << 20))
            if len(kept) > 200:
                raise RuntimeError("3 GiB and no limit was met")
        return None

    return step


def tell(value):
    """Print what arrived on stdout; the harness keeps the end of it."""
    print("value", repr(value))
    for path in sorted(HERE.iterdir()):
        print("file", path.name)
    print("content", (HERE / "data" / "inner.txt").read_text())
    for name, content in sorted(os.environ.items()):
        print("environment", name, content)
    print("interfaces", *(name for _, name in socket.if_nameindex()))


def sockets():
    """Start what frameworks start and what listens on a Unix socket in the folder for temporary files."""
    with multiprocessing.Manager() as manager:
        manager.dict(a=1)
    for method in ("forkserver", "spawn"):
        child = multiprocessing.get_context(method).Process(target=os.getpid)
        child.start()
        child.join()
        print(method, child.exitcode)
    os.close(resource_sharer.DupFd(1).detach())  # as torch's DataLoader does with the tensors of its workers
