"""An unmodified program: runs as `__main__`, as `python train.py` or `python -m mypkg.train` would run it, and is
measured at each call of what trains (hooks/).

More events than those of a script (scenario.py):

    {"type": "hooked", "hook": "torch", "module": "torch.optim.optimizer", "changed": true}    a module was imported
    {"type": "metric", "name": "loss"}                                      a number was logged for the first time
    {"type": "ended", "end": …, "cut": true}       cut: the program is ended here, before its own end
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

from .. import due_looks, failure, samples
from ..probes import cgroup
from . import hooks, importing, looks, scenario, ticking
from .hooks import function, printed

READS_STDIN = "; its stdin is empty here"


class ProgramRun(scenario.ScriptRun):
    """One program, from its start to its end or to its last step."""

    def __init__(self, job, root, table, link):
        asked = job["program"]
        path = os.path.join(root, asked["path"]) if asked["path"] else asked["module"]
        scenario.ScriptRun.__init__(self, job, path, table, link)
        self._asked = asked
        self._counts = asked["steps_are"]
        self._readers_made = {}
        self._left = due_looks.DueLooks(job)
        self._rows_sent = 0
        self._looker = None
        self._ticker = None
        self._started = 0.0

    def _run(self):
        try:
            self._measure()
        except scenario.LinkLost:
            raise
        except BaseException as error:  # the program's own end: SystemExit, or a failure
            if os.getpid() != self.owner:
                raise
            if self._ticker is not None and self._ticker.ended:
                return 0  # it was told to end, and whatever it raised is a consequence
            if not self._is_good_exit(error):
                self._fail(error)
                return 1
        if os.getpid() == self.owner and not self._ticker.ended:
            self._complete()
        return 0

    def _measure(self):
        self._readers_made = self._readers()
        self.table.clear(0, samples.ALWAYS)
        self._started = time.perf_counter()
        self._ticker = ticking.Ticker(
            self.table,
            self._readers_made,
            self._left,
            begin=self._guarded(self._begin),
            look=self._guarded(self._look),
            leave=self._leave,
        )
        code, module = self._load()
        self._hook(module)
        if self._asked["printed"]:
            printed.Reader(self._asked["printed"], self._logged).install()
        exec(code, module.__dict__)

    def _guarded(self, act):
        """Wrap a callback so that the program cannot catch that the supervisor is gone."""

        def guarded(ticker):
            try:
                return act(ticker)
            except scenario.LinkLost:
                self.table.header[samples.LOST] = 1
                os._exit(1)

        return guarded

    # -------------------------------------------------------------- how it is started

    def _load(self):
        """Return the code and the new module `__main__`; sys.argv and sys.path are as Python sets them."""
        main = types.ModuleType("__main__")
        main.__builtins__ = sys.modules["builtins"]
        if self._asked["module"]:
            sys.path.insert(0, os.getcwd())
            sys.argv = ["-m"] + self._asked["args"]
            try:
                _, spec, code = runpy._get_module_details(self._asked["module"])
            except ImportError as error:
                raise failure.Told("module %s: %s" % (self._asked["module"], error))
            main.__spec__, main.__loader__, main.__package__ = spec, spec.loader, spec.parent
            main.__file__ = self.script = spec.origin
            own = self._named_here((self._asked["module"], "__main__"))
            if own:
                code = self._compiled(spec.loader.get_source(spec.name), own)
        else:
            sys.path.insert(0, os.path.dirname(self.script))
            main.__file__ = self.script
            main.__loader__ = importlib.machinery.SourceFileLoader("__main__", self.script)
            stem = os.path.splitext(os.path.basename(self.script))[0]
            with open(self.script, "rb") as file:
                code = self._compiled(file.read(), self._named_here((stem, "__main__")))
        sys.argv = [self.script] + self._asked["args"]
        sys.modules["__main__"] = main
        return code, main

    def _named_here(self, modules):
        """Return the names of the function that makes a step, if the program's own file defines it; else None."""
        module, names = function.parted(self._counts) if ":" in self._counts else (None, None)
        return names if module in modules else None

    def _compiled(self, source, names):
        if not names:
            return compile(source, self.script, "exec", dont_inherit=True)
        tree = ast.parse(source, self.script)
        function.decorate(tree, names, self._counts)
        self._hooked("function", "__main__", True)
        self._counts = ""
        return compile(tree, self.script, "exec", dont_inherit=True)

    def _hook(self, main):
        mark = functools.partial(self._ticker.mark, "function")
        setattr(main, function.DECORATOR, functools.partial(function.wrapped, mark=mark))
        awaited = hooks.awaited(self._counts, self._ticker, self._logged, self._hooked)
        if ":" in self._counts:
            for name, changes in function.awaited(self._counts, mark).items():
                awaited.setdefault(name, []).extend(functools.partial(self._function, name, one) for one in changes)
        importing.Finder(awaited).install()

    def _function(self, name, change, module):
        """Hook the named function. Without it the trial ends at once: the program could catch an exception here."""
        try:
            change(module)
        except function.NoStep as error:
            self.link.tell("failed", setup=True, oom=False, message=str(error))
            os._exit(1)
        self._hooked("function", name, True)

    # -------------------------------------------------------------- what the hooks tell

    def _hooked(self, kind, module, changed):
        if os.getpid() == self.owner and kind != "log":
            self.link.tell("hooked", hook=kind, module=module, changed=changed)

    def _logged(self, values):
        if os.getpid() != self.owner:
            return
        metrics, number = self._ticker.metrics, max(1, self._ticker.steps)
        for name in metrics.take(values):
            self.link.tell("metric", name=name)
        row = max((number - 1) // self.table.stride, self._rows_sent)  # what follows a look belongs to the next row
        metrics.record(row, number, values)

    def _begin(self, ticker):
        """Wait after the first step, so that the supervisor can count and read the output up to now."""
        self.where = "step"
        took_s = time.perf_counter() - self._started
        self._looker = looks.Looker(self._readers_made, cgroup.find(), self._follow_pool(ticker), ticker.cpu)
        names = ticker.metrics.settle()
        self.link.ask("ready", setup_s=None, first_step_s=took_s, probes=ticker.probes, metrics=names)

    def _look(self, ticker):
        """Take a look, and return whether the program goes on."""
        whole = self._left.take(ticker.steps, ticker.busy_s)
        goes_on = not whole and not self.table.header[samples.STOP]
        if goes_on:
            look = ticker.aside(self._looker.look)
            goes_on = self.link.ask("look", step=ticker.steps, look=look, last=False) != "stop"
        if goes_on:
            self._rows_sent = ticker.steps // self.table.stride
            return True
        self._last_look()
        self.link.tell("ended", end="completed" if whole else "stopped", cut=True)
        return False

    def _last_look(self):
        steps, look = self._ticker.steps, self._ticker.aside(self._looker.last_look)
        self.link.ask("look", step=steps, look=look, last=True)

    # -------------------------------------------------------------- how it ends

    def _complete(self):
        """Report that the program ended by itself."""
        if not self._ticker.steps:
            others = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0
            self.link.tell("unseen", others=others)
            return
        self._ticker.settle()
        self._last_look()
        self.link.tell("ended", end="stopped", cut=False)

    def _is_good_exit(self, error):
        return isinstance(error, SystemExit) and error.code in (None, 0)

    def _fail(self, error):
        if isinstance(error, SystemExit):
            if isinstance(error.code, str):
                sys.stderr.write(error.code + "\n")
            error = failure.Told("the program called sys.exit(%s)" % repr(error.code)[:300])
        place = "step %d" % (self._ticker.steps + 1) if self._ticker and self._ticker.steps else "before the first step"
        message = failure.describe(error, place, self.script)
        if isinstance(error, EOFError):
            message += READS_STDIN
        self.link.tell("failed", setup=self.where == "setup", oom=failure.is_oom(error), message=message)

    def _leave(self):
        """End the process: the program caught the exception that ended it, and went on to another step."""
        sys.stdout.flush()
        os._exit(0)
