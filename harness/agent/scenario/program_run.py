"""Runs an unmodified program as `python train.py` or `python -m mypkg.train` would, and measures it at each call of
the function that trains (hooks/).

It sends these events in addition to those of a script (script_run.py):

    {"type": "hooked", "hook": "torch", "changed": true}      a module was imported; changed: its steps can be counted
    {"type": "metric", "name": "loss"}                        a number was logged for the first time
    {"type": "over"}                               it has made its steps, and may end by itself; it waits
    {"type": "unseen", "others": false}            it ended without a step; others: it ran other processes. Unless
                                                   `steps_are` names what a step is, `ready`, a look and `ended` follow
    {"type": "ended", "end": …, "cut": true}       cut: the agent ends the program here, before its own end. Else
                                                   "run_s": the seconds that the program ran, without the looks, and
                                                   "ran_on_s": of them, those after its last step
"""

import ast
import functools
import importlib.machinery
import os
import resource
import runpy
import sys
import time
import types

from .. import due, failure, samples
from ..probes import cgroup
from . import hooks, importing, script_run, stepping, ticking
from .hooks import function, lines, printed

READS_STDIN = "; its stdin is empty here"


class ProgramRun(script_run.ScriptRun):
    """One program, from its start to its end or to its last step."""

    def __init__(self, job, root, table, link):
        program = job["program"]
        path = os.path.join(root, program["path"]) if program["path"] else program["module"]
        script_run.ScriptRun.__init__(self, job, path, table, link)
        self._program = program
        self._steps_are = program["steps_are"]
        self._readers_made = {}
        self._due_looks = due.DueLooks(job)
        self._rows_sent = 0
        self._looker = None
        self._ticker = None
        self._lines = None
        self._numbers = None  # those that it prints
        self._started = 0.0

    def _run(self):
        try:
            self._measure()
        except script_run.LinkLost:
            raise
        except BaseException as error:  # the program's own end: SystemExit, or a failure
            if os.getpid() != self.owner:
                raise
            if self._ticker is not None and self._ticker.ended:
                return 0  # the agent ended it, and whatever it raised is a consequence
            if not (isinstance(error, SystemExit) and error.code in (None, 0)):
                self._fail(error)
                return 1
        if os.getpid() == self.owner and not self._ticker.ended:
            self._complete()
        return 0

    def _measure(self):
        self._readers_made = self._readers()
        self.table.clear(0, samples.ALWAYS)
        self._ticker = ticking.Ticker(
            self.table,
            self._readers_made,
            self._due_looks,
            begin=self._guarded(self._begin),
            look=self._guarded(self._look),
            leave=self._leave,
            tell_metric=self._guarded(self._tell_metric),
        )
        code, module = self._load()
        mark = functools.partial(self._ticker.mark, "function")
        setattr(module, function.DECORATOR, functools.partial(function.wrapped, mark=mark))
        awaited = hooks.awaited(self._steps_are, self._ticker, self._logged, self._hooked)
        if ":" in self._steps_are:
            name, names = function.parted(self._steps_are)
            awaited.setdefault(name, []).append(functools.partial(self._hook_function, names, mark))
        importing.Finder(awaited).install()
        if self.job["printed"] != {}:
            self._numbers = printed.reader(self.job["printed"], self._logged)
            self._numbers.install()
        if self._steps_are == "auto":
            self._lines = lines.LineSteps(functools.partial(self._ticker.mark, "line"))
            self._lines.install()
        self._ticker.cpu.resume()
        self._started = time.perf_counter()
        exec(code, module.__dict__)

    def _guarded(self, act):
        """Return a callback that ends the process if the supervisor is gone, so that no program can catch LinkLost."""

        def guarded(given):
            try:
                return act(given)
            except script_run.LinkLost:
                self.table.header[samples.LOST] = 1
                os._exit(1)

        return guarded

    # -------------------------------------------------------------- how it is started

    def _load(self):
        """Return (code, the new module `__main__`), with sys.argv and sys.path as Python sets them."""
        main = types.ModuleType("__main__")
        main.__builtins__ = sys.modules["builtins"]
        if self._program["module"]:
            sys.path.insert(0, os.getcwd())
            sys.argv = ["-m"] + self._program["args"]
            try:
                _, spec, code = runpy._get_module_details(self._program["module"])
            except ImportError as error:
                raise failure.ScenarioError("module %s: %s" % (self._program["module"], error))
            main.__spec__, main.__loader__, main.__package__ = spec, spec.loader, spec.parent
            main.__file__ = self.script = spec.origin
            own = self._named_here((self._program["module"], "__main__"))
            if own:
                code = self._compiled(spec.loader.get_source(spec.name), own)
        else:
            sys.path.insert(0, os.path.dirname(self.script))
            main.__file__ = self.script
            main.__loader__ = importlib.machinery.SourceFileLoader("__main__", self.script)
            stem = os.path.splitext(os.path.basename(self.script))[0]
            with open(self.script, "rb") as file:
                code = self._compiled(file.read(), self._named_here((stem, "__main__")))
        sys.argv = [self.script] + self._program["args"]
        sys.modules["__main__"] = main
        return code, main

    def _named_here(self, modules):
        """Return the names of the step's function if it is in one of `modules`, the program's own names; else None."""
        module, names = function.parted(self._steps_are) if ":" in self._steps_are else (None, None)
        return names if module in modules else None

    def _compiled(self, source, names):
        """Return the program's code, with the function that `names` name decorated, if any."""
        if names:
            source = ast.parse(source, self.script)
            function.decorate(source, names, self._steps_are)
            self._hooked("function", True)
            self._steps_are = ""
        return compile(source, self.script, "exec", dont_inherit=True)

    def _hook_function(self, names, mark, module):
        """Hook the named function. If it does not exist, end the trial here: the program could catch an exception."""
        try:
            function.replace_function(module, names, mark, self._steps_are)
        except function.NoStep as error:
            self.link.tell("failed", setup=True, oom=False, message=str(error))
            os._exit(1)
        self._hooked("function", True)

    # -------------------------------------------------------------- calls of the hooks

    def _hooked(self, kind, changed):
        if os.getpid() == self.owner and kind != "log":
            if self._lines is not None and self._ticker.kind != "line" and kind not in hooks.MAY_MAKE_NONE:
                self._lines.is_off = True  # the framework says what a step is
            self.link.tell("hooked", hook=kind, changed=changed)

    def _logged(self, values):
        if os.getpid() != self.owner:
            return
        ticker = self._ticker
        number = max(1, ticker.steps + (ticker.kind == "line" and not ticker.is_over))  # a line that is a step ends it
        row = max((number - 1) // self.table.stride, self._rows_sent)  # what follows a look belongs to the next row
        ticker.metrics.record(row, number, values)

    def _begin(self, ticker):
        """Wait after the first step, so that the supervisor can count what is held and read the output so far."""
        if self._numbers is not None:
            self._numbers.begin()
        self._ready(ticker, time.perf_counter() - self._started)

    def _ready(self, ticker, first_step_s):
        self.where = "step"
        self._looker = stepping.Looker(self._readers_made, cgroup.find_cgroup(), self._follow_pool(ticker), ticker.cpu)
        shape = self._lines.shape if ticker.kind == "line" else None
        self.link.ask(
            "ready", setup_s=None, first_step_s=first_step_s, probes=ticker.probes, metrics=ticker.metrics.names,
            step_kind=ticker.kind, step_shape=shape,
        )  # fmt: skip

    def _look(self, ticker):
        """Park or take a look, and return whether the program goes on."""
        if not ticker.is_over:
            self._park_if_asked()
            if not (self.table.header[samples.STOP] or self._due_looks.due(ticker.steps, ticker.busy_s)):
                return True
        is_whole = ticker.is_over or self._due_looks.take(ticker.steps, ticker.busy_s)
        if is_whole and not ticker.is_over and not self.table.header[samples.STOP]:
            ticker.is_over = True
            self.link.ask("over")
            self.table.header[samples.OVER] = time.perf_counter()
            return True
        goes_on = not is_whole and not self.table.header[samples.STOP]
        if goes_on:
            look = ticker.aside(self._looker.look)
            goes_on = self.link.ask("look", step=ticker.steps, look=look, last=False) != "stop"
        if goes_on:
            self._rows_sent = ticker.steps // self.table.stride
            return True
        self._last_look()
        self.link.tell("ended", end="completed" if is_whole else "stopped", cut=True)
        return False

    def _last_look(self):
        steps, look = self._ticker.steps, self._ticker.aside(self._looker.last_look)
        self.link.ask("look", step=steps, look=look, last=True)

    # -------------------------------------------------------------- how it ends

    def _complete(self):
        """Report that the program ended by itself. If no step was seen, its whole run is the one step."""
        now = time.perf_counter()
        run_s, ran_on_s = now - self._started - self._ticker.paused_s, now - self.table.header[samples.STARTED]
        is_whole = self._ticker.is_over
        if not self._ticker.steps:
            is_whole = True
            self.link.tell("unseen", others=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0)
            if self._steps_are != "auto":
                return
            self._ticker.take_whole()
            self._ready(self._ticker, None)
        self._ticker.settle()
        if self._numbers is not None:
            self._logged(self._numbers.rest())
        self._ticker.metrics.fold(self._ticker.steps)
        self._last_look()
        end = "completed" if is_whole else "stopped"
        self.link.tell("ended", end=end, cut=False, run_s=run_s, ran_on_s=ran_on_s)

    def _fail(self, error):
        exits = isinstance(error, SystemExit) and not isinstance(error.code, str)
        if isinstance(error, SystemExit):
            if not exits:
                sys.stderr.write(error.code + "\n")
            sys.stderr.flush()
            error = failure.ScenarioError("the program called sys.exit(%s)" % repr(error.code)[:300])
        place = "step %d" % (self._ticker.steps + 1) if self._ticker and self._ticker.steps else "before the first step"
        message = failure.describe_failure(error, place, self.script)
        if isinstance(error, EOFError):
            message += READS_STDIN
        self.link.tell("failed", setup=self.where == "setup", oom=failure.is_oom(error), message=message, exits=exits)

    def _leave(self):
        """End the process: the program caught the exception that ended it, and went on to another step."""
        sys.stdout.flush()
        os._exit(0)
