"""Runs in the scenario process: imports the user's script, makes its steps, samples itself, and reports to the
supervisor.

It is a separate process because it may die in any way. It writes events, JSON lines, to one pipe and reads answers from
another; the samples are in shared memory (samples.py).

    {"type": "ready", "setup_s": …, "first_step_s": …, "probes": […], "metrics": […]}   after the first step; it waits
    {"type": "look", "step": 500, "look": {…}, "last": false}   it waits for go or stop; after the last look, for stop
    {"type": "parked"}                               it waits for its next slice
    {"type": "failed", "setup": true, "oom": false, "message": "…"}                     an exception: no more steps
    {"type": "ended", "end": "completed" or "stopped", "at": 12.5}     at: by its clock. The teardown follows
    {"type": "teardown", "oom": false, "message": "…"}                                  an exception in the teardown
    {"type": "file", "name": "optrace.json", "text": "…"}   from a wrapping probe, before `ended`; long files in parts
"""

import faulthandler
import json
import os
import sys
import time
import types

from .. import ending, inside, libc, samples
from . import children, stepping

CAME_BACK = "a forked process returned from it; end that process with os._exit"


def loaded(script):
    """Return a script as a module, with the import path that `python script.py` would have."""
    folder, name = os.path.split(script)
    sys.path.insert(0, folder)
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    module = types.ModuleType(os.path.splitext(name)[0])
    module.__file__ = script
    sys.modules[module.__name__] = module
    exec(code, module.__dict__)
    return module


class Link(object):
    """The conversation with the supervisor. If it is broken, the process ends at once, so that no program catches that:
    the supervisor is gone, or the scenario closed the descriptors."""

    def __init__(self, events_fd, answers_fd, header):
        self.owner = os.getpid()
        self._events_fd, self._answers_fd, self._header = events_fd, answers_fd, header

    def tell(self, event, **fields):
        data = json.dumps(dict(fields, type=event)).encode("ascii") + b"\n"
        try:
            while data:
                data = data[os.write(self._events_fd, data) :]
        except OSError:
            self._end()

    def ask(self, event, **fields):
        """Send an event and wait for the answer: "go" or "stop"."""
        self.tell(event, **fields)
        try:
            answer = os.read(self._answers_fd, 64)  # one line, written in one piece
        except OSError:
            answer = b""
        if not answer:
            self._end()
        return answer.decode("ascii").strip()

    def park_if_asked(self):
        """Wait between two steps until the supervisor starts the next slice, if it has asked for that."""
        if self._header[samples.STOP] == samples.PARK:
            self.ask("parked")

    def _end(self):
        if os.getpid() == self.owner:
            self._header[samples.LOST] = 1
        os._exit(1)


GENERATES, AWAITS = 0x20 | 0x200, 0x80  # bits of code.co_flags: CO_GENERATOR, CO_ASYNC_GENERATOR, CO_COROUTINE


def idle(function):
    """Return why calling the function would run none of its code, or None. Such steps would all seem good."""
    flags = function.__code__.co_flags if hasattr(function, "__code__") else 0
    if flags & GENERATES:
        return "the step function has a yield, so a call runs none of its code; let it return"
    if flags & AWAITS:
        return "the step function is async, so a call runs none of its code; let it run its own event loop"
    return None


class ScriptRun(object):
    """One script, from its import to its teardown. `fds`: events, answers, shared samples, stacks."""

    def __init__(self, root, fds):
        events_fd, answers_fd, table_fd, stacks_fd = fds
        for fd in fds:
            os.set_inheritable(fd, False)
        faulthandler.enable(file=stacks_fd, all_threads=True)
        faulthandler.register(libc.STACKS_SIGNAL, file=stacks_fd, all_threads=True)
        self.job = samples.read_job(root)
        inside.probe_class(self.job)
        self.script = os.path.join(root, self.job["script"])
        self.table = samples.Table(table_fd, *samples.shape(self.job["looks"][-1]))
        self.link = Link(events_fd, answers_fd, self.table.header)
        self.module = None
        self.where = "setup"
        self.step_place = ""

    def run(self):
        """Run the script and return the exit code: 0, or 1 after a reported failure."""
        try:
            self._measure()
        except stepping.CameBack:
            self._fail(ending.ScenarioError(CAME_BACK + self.step_place))
            self.table.header[samples.STOP] = samples.END
            os._exit(1)
        except BaseException as error:  # sys.exit and Ctrl-C inside a step are failures of that step
            if os.getpid() != self.link.owner:
                raise  # in a child that the scenario forked, how it ends does not matter here
            self._fail(error)
            return 1
        self._tear_down()
        return 0

    def _measure(self):
        readers = stepping.readers()
        self.table.clear(0, samples.ALWAYS)
        children.watch()
        started = time.perf_counter()
        step = self._set_up()
        probe = inside.make_probe(self.job, self.module, step)
        step = step if probe is None else probe.wrap(step)
        setup_s = time.perf_counter() - started
        self.where = "step"
        sampler = stepping.Sampler(self.table, readers, lambda name: self.link.tell("metric", name=name))
        stepper = stepping.Stepper(step, sampler)
        stepper.run(0, 1)
        looker = sampler.make_looker()
        # Wait here, while the supervisor counts what is held and reads the output so far.
        metrics = sampler.metrics.names
        self.link.ask("ready", setup_s=setup_s, first_step_s=stepper.busy_s, probes=sampler.names, metrics=metrics)
        end = self._step_and_look(stepper, sampler, looker)
        self.where = "exit"
        if probe is not None:
            for name, text in probe.files().items():
                for piece in inside.text_parts(text):
                    self.link.tell("file", name=name, text=piece)
        self.link.tell("ended", end=end, at=time.perf_counter())

    def _set_up(self):
        sys.argv = [self.script]
        self.module = loaded(self.script)
        if not callable(getattr(self.module, "setup", None)):
            raise ending.ScenarioError("%s has no function setup" % os.path.basename(self.script))
        step = self.module.setup(**self.job["params"])
        if os.getpid() != self.link.owner:
            raise stepping.CameBack()
        if not callable(step):
            returned = type(step).__name__ + ending.line_of(self.module.setup)
            raise ending.ScenarioError("it must return the step function; it returned %s" % returned)
        self.step_place = ending.line_of(step)
        problem = idle(step)
        if problem:
            raise ending.ScenarioError(problem + self.step_place)
        return step

    def _step_and_look(self, stepper, sampler, looker):
        """Run to the budget, to the answer "stop", or to the supervisor's request; return how it ended."""
        left, first_s, is_whole = samples.DueLooks(self.job), stepper.busy_s, False
        while not is_whole:
            stepper.run(stepper.steps, left.step, left.busy_s - (stepper.busy_s - first_s))
            self.link.park_if_asked()
            if not (self.table.header[samples.STOP] or left.due(stepper.steps, stepper.busy_s - first_s)):
                continue
            is_whole = left.take(stepper.steps, stepper.busy_s - first_s)
            if self.table.header[samples.STOP] or is_whole:
                break
            if self.link.ask("look", step=stepper.steps, look=sampler.aside(looker.look), last=False) == "stop":
                break
        self.link.ask("look", step=stepper.steps, look=sampler.aside(looker.last_look), last=True)
        return "completed" if is_whole else "stopped"

    def _fail(self, error):
        in_setup, steps = self.where == "setup", self.table.header[samples.STEPS]
        where = {"setup": "setup", "step": "step %d" % (steps + 1), "exit": ending.AT_EXIT}[self.where]
        oom = ending.is_oom(error)
        message = ending.describe_failure(error, where, self.script, else_place=self.step_place)
        # Wait until the supervisor has listed the libraries of this process.
        waits = inside.probe_name(self.job) == "components" and os.getpid() == self.link.owner
        report = self.link.ask if waits else self.link.tell
        report("failed", setup=in_setup, oom=oom, message=message, waits=waits)

    def _tear_down(self):
        """Run the teardown after all steps; report its failure."""
        try:
            if hasattr(self.module, "teardown"):
                self.module.teardown()
        except BaseException as error:
            if os.getpid() != self.link.owner:
                raise
            message = ending.describe_failure(error, ending.AT_EXIT + ": teardown", self.script)
            self.link.tell("teardown", oom=ending.is_oom(error), message=message)
