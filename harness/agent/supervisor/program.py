"""Supervises a program (scenario/program_run.py). Unlike a script, a program may make no step that the agent sees."""

from .. import samples
from ..probes import tree
from . import failure_reason, unseen
from .script import ScriptWatch


class ProgramWatch(ScriptWatch):
    """Watches an unmodified program. If none of its steps is seen, the message says why."""

    def __init__(self, job, root, outbox, gpus):
        ScriptWatch.__init__(self, job, root, outbox, gpus)
        self._steps_are = job["program"]["steps_are"]
        self._hooked = {}  # framework -> whether all of its imported modules could be changed
        self._unseen_at = None  # when it should have made a step
        self._starting_s = 0.0  # how long it was seen to import and compile by then

    def open(self):
        ScriptWatch.open(self)
        if self._steps_are == "auto":
            self._unseen_at = self.clock() + unseen.WAIT_S

    # -------------------------------------------------------------- events of the scenario process

    def _on_hooked(self, hook, changed):
        self._hooked[hook] = self._hooked.get(hook, True) and changed

    def _on_unseen(self, others):
        self._leave(("setup", "the program ended, and no step was seen: " + self._why_unseen(others)), "no_step")

    def _on_ended(self, end, cut):
        """End the trial. `cut`: the agent stopped the program before its own end, so that this end does not count."""
        if cut:
            self._leave_after_steps(end)
        else:
            self._made_its_steps = self._verdict is None
            self._leave((end, unseen.SHORT % (self.steps(), self.job["looks"][-1])), "own_end")

    def _on_failed(self, exits=False, **event):
        """End the trial. `exits`: the program called sys.exit without a reason; before the first step, the last line of
        the output (as printed by argparse) is then taken for the reason."""
        if exits and event["setup"]:
            self.drain()
            event["message"] = ": ".join(
                filter(None, (event["message"], failure_reason.last_words(self.output.tail())))
            )
        ScriptWatch._on_failed(self, **event)

    # -------------------------------------------------------------- no step was seen

    def tick(self, now):
        if self._unseen_at is not None and now > self._unseen_at:
            self._miss_a_step(now)
        ScriptWatch.tick(self, now)

    def _miss_a_step(self, now):
        """End a program that has made no step, unless it still imports or compiles."""
        self._unseen_at = None
        if self.done is not None or self._verdict is not None or not self._in_setup():
            return
        stacks = self._ask_stacks()
        if unseen.is_starting(stacks):
            self._starting_s += unseen.WAIT_S
            self._unseen_at = now + unseen.WAIT_S
            self._forget_stacks()
        else:
            self._end_unseen(self._starting_s + unseen.WAIT_S, stacks, remedy="slow")

    def _setup_overdue(self, limit_s):
        self._end_unseen(limit_s, self._ask_stacks())

    def _end_unseen(self, waited_s, stacks, remedy="function"):
        if self._replaced:
            self._end_replaced()
            return
        self.shortfall = "no_step"
        starting = " (it imported or compiled for %g s of them)" % self._starting_s if self._starting_s else ""
        why = self._why_unseen(len(tree.descendants()) > 1, remedy)
        message = "no step was seen in %g s%s%s: %s" % (waited_s, starting, self._place(stacks), why)
        self.end("setup", message, stacks=stacks)

    def _why_unseen(self, others, remedy="function"):
        elsewhere = int(self.table.header[samples.ELSEWHERE])
        self.remedy = "" if elsewhere else remedy
        return unseen.why_unseen(self._steps_are, self._hooked, elsewhere, others)

    def _end_replaced(self, death=None):
        self.shortfall, self.remedy = "no_step", "command"
        self.end("setup", unseen.REPLACED, death=death)

    def _died_without_a_word(self, death):
        if self._replaced and death.signal is None:
            self._end_replaced(death)
        else:
            ScriptWatch._died_without_a_word(self, death)
