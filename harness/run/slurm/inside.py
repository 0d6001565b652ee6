"""Runs on the node, in the trial's Python (3.6 to 3.15): reads the trial's files from its input and starts the agent.

    python -c THIS_TEXT

The first line of the input is a JSON object. The contents of the files follow one after the other, and then the agent's
own input, of which nothing is read here.

    {"root": "/tmp/harness-trial-…" or null,     the folder to make; null: a new temporary one, in fresh containers
     "files": [["start.py", 1234, false], …],    path, size in bytes, whether any user may execute it
     "environment": {"LANG": "C.UTF-8"},         the agent's variables; HOME and TMPDIR are the folder if `only`
     "only": true,                               the agent gets no other variables
     "without": null or {"names": "RANK|SLURM_.*", "values": {"HOME": "/root"}, "kept": ["RANK"]},
                                                 the variables to remove, by a pattern, or by name and value, except
                                                 those in `kept`. HOME is then the folder, unless `environment` sets it
     "alone": true,                              run in a new network namespace with only a loopback interface
     "data_limit_bytes": null or 123,            RLIMIT_DATA, if nothing else limits memory
     "arguments": ["gpus"]}                      the arguments of start.py

The folder is removed when the agent has ended, or when this process receives SIGTERM.
"""

import fcntl
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile

try:
    import ctypes
except ImportError:  # a Python that was built without ctypes
    ctypes = None

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
KILL_S = 10.0
SIOCSIFFLAGS, UP_AND_RUNNING = 0x8914, 0x41


def taken(size):
    """Yield exactly `size` bytes of the input in pieces: the bytes that follow belong to the agent."""
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            sys.exit("harness: the input ended before the trial's files did")
        yield part
        size -= len(part)


def header():
    line = bytearray()
    while not line.endswith(b"\n"):
        line += next(taken(1))
    return json.loads(line.decode("utf-8"))


def put(root, path, size, executable):
    place = os.path.join(root, path)
    if not os.path.isdir(os.path.dirname(place)):
        os.makedirs(os.path.dirname(place), 0o755)
    with open(place, "wb") as file:
        file.writelines(taken(size))
    os.chmod(place, 0o755 if executable else 0o644)


def environment(order, root):
    wanted = dict(order["environment"])
    if order["only"]:
        return dict({"HOME": root, "TMPDIR": root}, **wanted)
    without = order.get("without")
    if not without:
        return dict(os.environ, **wanted)
    kept = {name: value for name, value in os.environ.items() if not is_outside(name, value, without)}
    return dict(dict(kept, HOME=root), **wanted)


def is_outside(name, value, without):
    """Return whether a variable comes from the node or Slurm rather than from the image."""
    if name in without["kept"]:
        return False
    return re.match("(?:%s)$" % without["names"], name) is not None or without["values"].get(name) == value


def be_alone():
    """Enter a new network namespace, inside a new user namespace, which unprivileged users may create."""
    user, group = ("{0} {0} 1".format(number) for number in (os.getuid(), os.getgid()))
    maps = (("setgroups", "deny"), ("uid_map", user), ("gid_map", group))
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        for name, text in maps:
            with open("/proc/self/" + name, "w") as file:
                file.write(text)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", UP_AND_RUNNING))
    except (AttributeError, OSError) as error:
        sys.exit("harness: the network cannot be switched off here (%s): set network: true in the scenario" % error)


def ended(number, frame):
    sys.exit(128 + number)


def main():
    signal.signal(signal.SIGTERM, ended)
    order = header()
    if order.get("alone"):
        be_alone()
    if order["root"]:
        root = order["root"]
        os.mkdir(root, 0o700)
    else:
        root = tempfile.mkdtemp(prefix="harness-")
    child, remove = None, shutil.rmtree
    try:
        for path, size, executable in order["files"]:
            put(root, path, size, executable)
        sys.path.insert(0, root)
        from harness_agent import caches, killing, stopping  # before the trial can change it

        sys.path.remove(root)
        remove = caches.remove  # however deep
        if order["data_limit_bytes"]:
            resource.setrlimit(resource.RLIMIT_DATA, (order["data_limit_bytes"],) * 2)
        try:
            child = subprocess.Popen(
                [sys.executable, "-B", os.path.join(root, "start.py")] + order["arguments"],
                cwd=root,
                env=environment(order, root),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL or "=" that the system rejects
            sys.exit("harness: the agent cannot be started: %s; see `environment:`" % error)
        code = child.wait()
        return 128 - code if code < 0 else code
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the signal would interrupt the removal
        if child is not None:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except OSError:  # no process of the group is left
                pass
            killing.kill(lambda: killing.at_home(root), for_s=KILL_S)
            stopping.stop(root)
        try:
            remove(root)
        except OSError:  # the next run on this node removes it
            pass


if __name__ == "__main__":
    sys.exit(main())
