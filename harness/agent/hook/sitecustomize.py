"""Lets the agent into each Python process that a program starts: this folder is first on PYTHONPATH there.

It hides the folder from sys.path, and runs the image's own sitecustomize, if any. A process that runs the program
itself starts anew as `start.py rank`, with the same pid. Any other gets the hooks (scenario/program_run.py) once it
prints something or imports what has hooks: until then it costs a process hardly anything. A process that cannot be
entered runs as it would alone, and is not seen.

The supervisor's variable HARNESS_GROUP has, separated by tabs: its pid, the name of its socket, the descriptor, in its
own process, of the file for stacks, the program (a path, or `-m` and a module), and the modules that have hooks.
"""

import os
import sys

TAKES_ONE = "XWcm"  # the interpreter's options that take an argument


def _run_own():
    """Import the sitecustomize that would have been imported without this one, which stays if there is none."""
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401 (another one: this folder is no longer on sys.path)
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


def _enter(root, program, names):
    with open("/proc/self/cmdline", "rb") as file:
        words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    start = os.path.join(root, "start.py")
    if start in words or any("_tracker import main" in word for word in words):
        return
    options, args = _own_args(words, program)
    if args is not None:
        os.execv(sys.executable, [words[0], *options, "-B", start, "rank", *args])
    _Waiting(root).begin(names)


def _own_args(words, program):
    """Return the interpreter's options and the arguments of the program, None if this process runs something else."""
    place = 1
    while place < len(words) and words[place].startswith("-") and words[place] != "-":
        word = words[place]
        takes = next((at for at, letter in enumerate(word) if letter in TAKES_ONE and not word.startswith("--")), None)
        if takes is not None and word[takes] in "cm":
            module = word[takes + 1 :] or "".join(words[place + 1 : place + 2])
            rest = words[place + (1 if word[takes + 1 :] else 2) :]
            return words[1:place], rest if word[takes] == "m" and program == "-m " + module else None
        place += 2 if takes is not None and takes == len(word) - 1 else 1
    if program.startswith("-m ") or place >= len(words):
        return [], None
    is_own = os.path.realpath(words[place]) == os.path.realpath(program)
    return words[1:place], words[place + 1 :] if is_own else None


class _Waiting(object):
    """Waits until this process prints something, or imports what has hooks."""

    def __init__(self, root):
        self._root = root
        self._writes = []

    def begin(self, names):
        importing = _agent(self._root, "importing")
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                self._writes.append((stream, stream.write))
                stream.write = self._writing(stream)
        importing.Finder({name: [self._install] for name in names}).install()

    def _writing(self, stream):
        def write(text):
            self._install()
            return stream.write(text)

        return write

    def _install(self, module=None):
        if not self._writes:
            return
        for stream, write in self._writes:
            stream.write = write
        self._writes = []
        _unnoticed(lambda: _agent(self._root, "program_run").enter(self._root))


def _unnoticed(act):
    """Act. Whatever that raises, the program must not notice it: it then runs as it would alone."""
    try:
        act()
    except Exception:
        pass


def _agent(root, name):
    sys.path.insert(0, root)
    try:
        return getattr(__import__("harness_agent.scenario", fromlist=[name]), name)
    finally:
        sys.path.remove(root)


_folder = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != _folder]
try:
    _run_own()
finally:
    _words = os.environ.get("HARNESS_GROUP", "").split("\t")
    if len(_words) == 5:
        _unnoticed(lambda: _enter(os.path.dirname(os.path.dirname(_folder)), _words[3], _words[4].split(",")))
