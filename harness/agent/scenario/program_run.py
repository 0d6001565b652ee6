"""Runs an unmodified program as `python train.py` or `python -m mypkg.train` would, and measures it at each call of
the function that trains (hooks/). Other processes of the program are measured in place: those that it forks inherit the
hooks, and `entering` installs them in the others. Each process that makes steps is a *rank*.

It sends these events in addition to those of a script (script_run.py) and to `join` (entering.py):

    {"type": "hooked", "hook": "torch", "changed": true}      a module was imported; changed: its steps can be counted
    {"type": "metric", "name": "loss"}                        a number was logged for the first time
    {"type": "due"}                                a look is due by time. It is told to look, or, if there are several
                                                   ranks, to go on: all of them look after the same step, by the header
    {"type": "over"}                               it has made its steps, and may end by itself; it waits. If it is told
                                                   to go on, another rank ends the launch, and may wait for its steps
    {"type": "unseen"}                             it ended without a step. Unless `steps_are` names what a step is, or
                                                   another process made steps, `ready`, a look and `ended` follow
    {"type": "left"}                               a process that multiprocessing started ends well
    {"type": "lost", "pid": 12, "status": 768}     it has waited for a child, perhaps a rank, that did not end well
    {"type": "ended", "end": …, "cut": true}       cut: the agent ends the program here, before its own end. Else
                                                   "at": when this was sent,
                                                   "run_s": the seconds that the program ran, without the looks, and
                                                   "ran_on_s": of them, those after its last step
"""

import ast
import builtins
import functools
import importlib.machinery
import os
import runpy
import sys
import time
import types

from .. import ending, samples
from . import children, entering, function, hooks, importing, printed, script_run, stepping, ticking
from .hooks import ranks

READS_STDIN = "; its stdin is empty here"


def enter(root):
    """Watch what this process runs."""
    ProgramRun(root).install()


class ProgramRun(object):
    """One process of a program: `run` runs the program itself in it, `install` only watches what it runs."""

    def __init__(self, root):
        job = samples.read_job(root)
        program = job["program"]
        path = os.path.join(root, program["path"]) if program["path"] else program["module"]
        self.job, self.script = job, path
        self.table = self.link = None  # until this process joins the trial
        self.where = "setup"
        self._program = program
        self._steps_are = program["steps_are"]
        self._due_looks = None
        self._rows_sent = 0
        self._looker = None
        self._ticker = ticking.Ticker(join=self._join, begin=self._begin, look=self._look, leave=self._leave)
        self._lines = None
        self._numbers = None  # those that it prints
        self._hooks = {}  # framework -> whether all of its imported modules could be changed
        self._started = time.perf_counter()
        self._is_run = False  # the program itself runs in this process
        self._main = os.getpid()  # the process that was not forked from another one of the program

    def run(self, args):
        """Run the program with these arguments and return its exit code."""
        self._is_run = True
        is_first = entering.write_stacks()
        if is_first and not self._join(""):
            return 1
        try:
            code, module = self._load(args)
            setattr(module, function.DECORATOR, self._decorator())
            self._watch()
            self._started = time.perf_counter()
            exec(code, module.__dict__)
        except BaseException as error:  # the program's own end: SystemExit, or a failure
            if self._has_joined() and self._ticker.ended:
                return 0  # the agent ended it, and whatever it raised is a consequence
            if os.getpid() != self._main:
                self._failed(error)
                raise
            if not (isinstance(error, SystemExit) and error.code in (None, 0)):
                return self._fail(error)
        if self._has_joined() and not self._ticker.ended:
            self._complete()
        return 0

    def install(self):
        """Watch what this process runs."""
        entering.write_stacks()
        names = self._own_names()
        if names:
            setattr(builtins, function.DECORATOR, self._decorator())
            self._decorate_again(names)
        self._watch()

    def _watch(self):
        lines_are = self.job.get("lines")
        steps_are = "line" if lines_are else self._steps_are  # no framework, which the older versions do not use
        awaited = hooks.awaited(steps_are, self._ticker, self._logged, self._hooked, self._failed)
        if ":" in self._steps_are:
            name, names = function.parted(self._steps_are)
            mark = functools.partial(self._ticker.mark, "function")
            awaited.setdefault(name, []).append(functools.partial(self._hook_function, names, mark))
        importing.Finder(awaited).install()
        children.watch(self._lost)
        if self.job["printed"] != {}:
            self._numbers = printed.reader(self.job["printed"], self._printed, measures=True)
            self._numbers.install()
        if self._steps_are == "auto":
            self._lines = printed.LineSteps(functools.partial(self._ticker.mark, "line"), lines_are)
            self._lines.install()
        printed.follow_streams()
        if self.link is not None:
            self._ticker.sampler.cpu.resume()

    # -------------------------------------------------------------- joining

    def _join(self, kind):
        """Join the trial, as a process that makes steps or that fails. Return whether the supervisor took it."""
        if not self._has_joined():
            try:
                tells = self._is_run and os.getpid() == self._main
                fd, table = entering.join(kind, samples.shape(self.job["looks"][-1]), tells)
            except (OSError, KeyError, ValueError):
                return False
            self.link, self.table = script_run.Link(fd, fd, table.header), table
            self.where, self._rows_sent, self._looker = "setup", 0, None
            for hook, changed in self._hooks.items():
                self.link.tell("hooked", hook=hook, changed=changed)
            if not table.header[samples.STEPS]:
                table.clear(0, samples.ALWAYS)
        self._due_looks = samples.DueLooks(self.job)
        self._due_looks.take(self.table.header[samples.STEPS], 0.0)
        self._ticker.fill(
            self.table, stepping.readers(), self._due_looks, lambda name: self.link.tell("metric", name=name)
        )
        self._ticker.sampler.cpu.resume()
        return True

    def _has_joined(self):
        return self.link is not None and self.link.owner == os.getpid()

    # -------------------------------------------------------------- how it is started

    def _load(self, args):
        """Return (code, the new module `__main__`), with sys.argv and sys.path as Python sets them."""
        main = types.ModuleType("__main__")
        main.__builtins__ = sys.modules["builtins"]
        if self._program["module"]:
            sys.path.insert(0, os.getcwd())
            sys.argv = ["-m", *args]
            try:
                _, spec, code = runpy._get_module_details(self._program["module"])
            except ImportError as error:
                raise ending.ScenarioError("module %s: %s" % (self._program["module"], error))
            main.__spec__, main.__loader__, main.__package__ = spec, spec.loader, spec.parent
            main.__file__ = self.script = spec.origin
            if self._own_names():
                code = self._compiled(spec.loader.get_source(spec.name), self._own_names(), self._steps_are)
        else:
            sys.path.insert(0, os.path.dirname(self.script))
            main.__file__ = self.script
            main.__loader__ = importlib.machinery.SourceFileLoader("__main__", self.script)
            with open(self.script, "rb") as file:
                code = self._compiled(file.read(), self._own_names(), self._steps_are)
        sys.argv = [self.script, *args]
        sys.modules["__main__"] = main
        return code, main

    def _decorator(self):
        mark = functools.partial(self._ticker.mark, "function")
        return functools.partial(function.wrapped, mark=mark)

    def _decorate_again(self, names):
        """Decorate the step's function also where multiprocessing runs the program's file in a new process."""
        original, steps_are = runpy._get_code_from_file, self._steps_are
        self._steps_are = ""

        @functools.wraps(original)
        def read(*args):
            # Before Python 3.13, the path is the last argument, after a name; from 3.15 on, a name follows it.
            is_new = sys.version_info >= (3, 13)
            path = args[0] if is_new else args[-1]
            if os.path.realpath(path) != os.path.realpath(self.script):
                return original(*args)
            with open(path, "rb") as file:
                code = self._compiled(file.read(), names, steps_are)
            return code if is_new else (code, path)

        runpy._get_code_from_file = read

    def _own_names(self):
        """Return the names of the step's function if it is in the program's own file; else None."""
        stem = os.path.splitext(os.path.basename(self.script))[0]
        module, names = function.parted(self._steps_are) if ":" in self._steps_are else (None, None)
        return names if module in (self._program["module"] or stem, "__main__") else None

    def _compiled(self, source, names, steps_are):
        """Return the program's code, with the function that `names` name decorated, if any."""
        if names:
            source = ast.parse(source, self.script)
            function.decorate(source, names, steps_are)
            self._hooked("function", True)
            self._steps_are = ""
        return compile(source, self.script, "exec", dont_inherit=True)

    def _hook_function(self, names, mark, module):
        """Hook the named function. If it does not exist, end the trial here: the program could catch an exception."""
        try:
            function.replace_function(module, names, mark, self._steps_are)
        except function.NoStep as error:
            self._report(setup=True, oom=False, message=str(error))
            os._exit(1)
        self._hooked("function", True)

    # -------------------------------------------------------------- calls of the hooks

    def _hooked(self, kind, changed):
        if kind == "log":
            return
        self._hooks[kind] = self._hooks.get(kind, True) and changed
        if self._lines is not None and self._ticker.kind != "line" and not hooks.may_make_none([kind]):
            self._lines.is_off = True  # the framework says what a step is
        if self._has_joined():
            self.link.tell("hooked", hook=kind, changed=changed)

    def _logged(self, values):
        if not self._has_joined():
            return
        ticker = self._ticker
        number = max(1, ticker.steps + (ticker.kind == "line" and not ticker.is_over))  # a line that is a step ends it
        row = max((number - 1) // self.table.stride, self._rows_sent)  # what follows a look belongs to the next row
        ticker.sampler.metrics.record(row, number, values)

    def _printed(self, values):
        self._numbers.note(self._ticker.steps, values)
        self._logged(values)

    def _begin(self, ticker):
        """Wait after the first step, so that the supervisor can count what is held and read the output so far."""
        if self._numbers is not None:
            self._numbers.begin()
        self._ready(ticker, time.perf_counter() - self._started)

    def _ready(self, ticker, first_step_s):
        self.where = "step"
        self._looker = ticker.sampler.make_looker()
        shape, sampler = self._lines.shape if ticker.kind == "line" else None, ticker.sampler
        self.link.ask(
            "ready", setup_s=None, first_step_s=first_step_s, probes=sampler.names, metrics=sampler.metrics.names,
            step_kind=ticker.kind, step_shape=shape, about=ranks.about(),
        )  # fmt: skip

    def _look(self, ticker):
        """Park or take a look, and return whether the program goes on."""
        if not ticker.is_over:
            self.link.park_if_asked()
            if not self._looks_now(ticker):
                return True
        is_whole = ticker.is_over or self._due_looks.take(ticker.steps, ticker.busy_s)
        if is_whole and not ticker.is_over and not self.table.header[samples.STOP]:
            ticker.is_over = self.link.ask("over") != "on"
            self.table.header[samples.OVER] = time.perf_counter()
            if ticker.is_over:
                return True
            is_whole = False
        goes_on = not is_whole and not self.table.header[samples.STOP]
        if goes_on:
            look = ticker.sampler.aside(self._looker.look)
            goes_on = self.link.ask("look", step=ticker.steps, look=look, last=False) != "stop"
        if goes_on:
            self._rows_sent = ticker.steps // self.table.stride
            return True
        self._last_look()
        self.link.ask("ended", end="completed" if is_whole else "stopped", cut=True)
        return False

    def _looks_now(self, ticker):
        """Return whether the program ends or takes a look after this step."""
        header, due_looks = self.table.header, self._due_looks
        stop, is_due = header[samples.STOP], due_looks.due(ticker.steps, ticker.busy_s)
        if stop >= samples.LOOK:
            if ticker.steps >= stop - samples.LOOK:
                header[samples.STOP] = 0
            return not header[samples.STOP]
        if is_due and not stop and ticker.steps < due_looks.step and self.link.ask("due") == "on":
            due_looks.take(ticker.steps, ticker.busy_s)
            return False
        return bool(stop) or is_due

    def _last_look(self):
        steps, look = self._ticker.steps, self._ticker.sampler.aside(self._looker.last_look)
        self.link.ask("look", step=steps, look=look, last=True)

    # -------------------------------------------------------------- how it ends

    def _complete(self):
        """Report that the program ended by itself. If no step was seen, or one line that is a step, which has no
        duration, its whole run is the one step."""
        now, read_s = time.perf_counter(), printed.spent.reading_s
        ran_s, ran_on_s = now - self._started - self._ticker.paused_s, now - self.table.header[samples.STARTED]
        run_s = ran_s - read_s
        is_whole, steps = self._ticker.is_over, self._ticker.steps
        is_one_line = steps == 1 and self._ticker.kind == "line" and not is_whole
        is_unseen = (is_one_line or not steps) and self.link.ask("unseen") != "stop"
        is_whole = is_whole or not steps or is_unseen
        if not (steps or is_unseen):
            self.link.tell("ended", end="completed", cut=False, at=time.perf_counter(), run_s=run_s)
            return
        if is_unseen:
            self._ticker.take_whole(read_s / ran_s)
            self._ready(self._ticker, None)
        self._ticker.settle()
        if self._numbers is not None:
            self._logged(self._numbers.rest(measures=is_unseen))
        self._ticker.sampler.metrics.fold(self._ticker.steps)
        self._last_look()
        end = "completed" if is_whole else "stopped"
        self.link.tell("ended", end=end, cut=False, at=time.perf_counter(), run_s=run_s, ran_on_s=ran_on_s)

    def _failed(self, error):
        """Report how a process of multiprocessing ends: by an exception, which it prints, or well."""
        ends_well = error is None or (isinstance(error, SystemExit) and error.code in (None, 0))
        if not (self._ticker.ended or ends_well):
            self._fail(error, "a process that made no step")
        elif self._has_joined():
            self.link.tell("left")

    def _lost(self, pid, status):
        try:
            if self._has_joined():
                self.link.tell("lost", pid=pid, status=status)
        except (TypeError, AttributeError):
            return  # the interpreter is being torn down, and has removed what this needs

    def _fail(self, error, place=None):
        """Report the failure of this process, and return its exit code. `place`: where it was if it made no step."""
        at = time.perf_counter()
        exits = isinstance(error, SystemExit) and not isinstance(error.code, str)
        if isinstance(error, SystemExit):
            if not exits:
                sys.stderr.write(error.code + "\n")
            sys.stderr.flush()
            error = ending.ScenarioError("the program called sys.exit(%s)" % repr(error.code)[:300])
        steps = self._ticker.steps if self._has_joined() else 0
        place = ending.before_steps(self._program["steps_are"]) if place is None else place
        place = "step %d" % (steps + 1) if steps else place
        message = ending.describe_failure(error, place, self.script)
        if isinstance(error, EOFError):
            message += READS_STDIN
        self._report(setup=self.where == "setup", oom=ending.is_oom(error), message=message, exits=exits, at=at)
        return 1

    def _report(self, **event):
        if self._has_joined() or self._join(""):
            self.link.tell("failed", **event)

    def _leave(self):
        """End the process: the program caught the exception that ended it, and went on to another step."""
        sys.stdout.flush()
        self.link.tell("left")
        os._exit(0)
