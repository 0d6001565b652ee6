"""Supervises a program (scenario/program_run.py). Unlike a script, a program may make no step that the agent sees:
`why_unseen` then explains why.
"""

from .. import ending, samples
from ..probes import processes
from .script import ScriptWatch


class ProgramWatch(ScriptWatch):
    """Watches an unmodified program. If none of its steps is seen, the message says why."""

    def __init__(self, job, root, outbox, gpus):
        ScriptWatch.__init__(self, job, root, outbox, gpus)
        self._steps_are = job["program"]["steps_are"]
        self._hooked = {}  # framework -> whether all of its imported modules could be changed
        self._began = self.clock()
        self._why = ""
        self._ran_s = self._ran_on_s = 0.0

    # -------------------------------------------------------------- events of the scenario process

    def _on_hooked(self, hook, changed):
        self._hooked[hook] = self._hooked.get(hook, True) and changed

    def _on_over(self):
        self.census.look()  # what it holds after its steps; the last look follows at its end
        self.answered("go")

    def _on_unseen(self, others):
        self._why = "the program ended, and no step was seen: " + self._why_unseen(others)
        if self._steps_are == "auto":
            self.remedy = ""
        else:
            self._leave(("setup", self._why), "no_step")

    def _on_ended(self, end, cut, run_s=0.0, ran_on_s=0.0):
        """End the trial. `cut`: the agent stopped the program before its own end, so that this end does not count."""
        if cut:
            self._leave_after_steps(end)
            return
        self._made_its_steps = self._verdict is None
        self._ran_s, self._ran_on_s, self._ended_at = run_s, ran_on_s, self.clock()
        if self._why:
            self.output.all_counts()
            self._leave((end, self._why), "no_step")
        elif end == "completed":
            self._leave((end, ""))
        else:
            self._leave((end, SHORT % (self.steps(), self.job["looks"][-1])), "own_end")

    def tick(self, now):
        over = self.table.header[samples.OVER]
        if over and self._verdict is None and now - over > max(LEAST_GRACE_S, over - self._began):
            self._cut()
        ScriptWatch.tick(self, now)

    def overdue(self, now):
        if self.table.header[samples.OVER] and self._verdict is None:
            self._cut()
        else:
            ScriptWatch.overdue(self, now)

    def _cut(self):
        """End a program that has made its steps and is busy with something else."""
        if self.done is None:
            self.end("completed", "")

    def died(self, death):
        ScriptWatch.died(self, death)
        if self.end_s is not None:
            self.run_s = self._ran_s + self.end_s
            self.end_s = None if self._why else self._ran_on_s + self.end_s

    def _on_failed(self, exits=False, **event):
        """End the trial. `exits`: the program called sys.exit without a reason; before the first step, the last line of
        the output (as printed by argparse) is then taken for the reason."""
        if exits and event["setup"]:
            self.drain()
            event["message"] = ": ".join(filter(None, (event["message"], ending.last_words(self.output.tail()))))
        ScriptWatch._on_failed(self, **event)

    # -------------------------------------------------------------- no step was seen

    def _setup_overdue(self, limit_s):
        if self._replaced:
            self._end_replaced()
            return
        stacks, why = self._ask_stacks(), self._why_unseen(len(processes.descendants()) > 1)
        self.shortfall = "no_step"
        if self._steps_are == "auto":
            self.remedy = "longer"
        message = "no step was seen in %g s%s: %s" % (limit_s, self._place(stacks), why)
        self.end("setup", message, stacks=stacks)

    def _why_unseen(self, others):
        elsewhere = int(self.table.header[samples.ELSEWHERE])
        self.remedy = "" if elsewhere else "function"
        return why_unseen(self._steps_are, self._hooked, elsewhere, others)

    def _end_replaced(self, death=None):
        self.shortfall, self.remedy = "no_step", "command"
        self.end("setup", REPLACED, death=death)

    def _died_without_a_word(self, death):
        if self._steps_are == "auto" and death.exit_code == 0 and self._in_setup():
            self._take_whole(death)
        elif self._replaced and death.signal is None:
            self._end_replaced(death)
        else:
            ScriptWatch._died_without_a_word(self, death)

    def _take_whole(self, death):
        """End the trial of a program that left without a word and without a step (os._exit, os.exec): its whole run is
        the one step, of which only what shows from outside is known."""
        self.run_s = self.clock() - self._began
        self.table.header[samples.STEPS] = 1
        self.table.column(self.columns["rss_kib"])[0] = death.peak_rss_kib
        self.ready(None, None, ["rss"])
        self.output.all_counts()
        self.look(1, {"cpu_s": processes.children_s(), "rss_peak_kib": death.peak_rss_kib}, last=True)
        self.shortfall, self.remedy = "no_step", ""
        self.end("completed", LEFT)


# ---------------------------------------------------------------- unseen


CALLS = {
    "torch": "an optimizer's step",
    "keras": "a batch of fit",
    "tf1": "a Session.run that trains",
    "jax": "a compiled function whose name says that it trains",
    "lightning": "a training batch",
    "transformers": "a step of Trainer",
    "lightgbm": "a round of boosting",
    "xgboost": "a round of boosting",
    "sklearn": "a call of partial_fit",
}
LEAST_GRACE_S = 10.0
"""Seconds that a program has at least to end by itself after its steps; it has as many as it took so far."""
OWN_PROCESS = "let it train in its own process"
OTHERS = "it ran other processes, and steps made in them are not counted: " + OWN_PROCESS
SHORT = "the program ended by itself after %d of %d steps; let it make more, or lower `budget`"
LEFT = "the program ended by os._exit or in another program (os.exec), and no step was seen"
REPLACED = "no step was seen: the program replaced itself with another (os.exec), in which nothing can be counted"


def why_unseen(steps_are, hooked, elsewhere, others):
    """Return why no step was seen.

    `hooked`: framework -> whether its imported modules could be changed. `elsewhere`: the number of steps made in
    processes that the program forked. `others`: whether it ran other processes.
    """
    if elsewhere:
        return "%d steps were made in processes that it forked; %s" % (elsewhere, OWN_PROCESS)
    return "; ".join(filter(None, [_hooks(steps_are, hooked), OTHERS if others else ""]))


def _hooks(steps_are, hooked):
    if ":" in steps_are:
        module = steps_are.partition(":")[0]
        return "%s was not called" % steps_are if "function" in hooked else "%s was not imported" % module
    if not hooked:
        return "it did not import %s" % ("any known framework" if steps_are == "auto" else steps_are)
    unknown = sorted(kind for kind in hooked if not hooked[kind])
    if unknown:
        return "this version of %s is not known" % " and ".join(unknown)
    return "%s: none was made" % " or ".join(CALLS[kind] for kind in sorted(hooked) if kind in CALLS)
