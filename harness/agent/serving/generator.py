"""Runs a load generator: any command that sends requests to the server, and whose numbers are results.

The launch is its whole run, of which rows are samples of the server's memory, as those of a command without steps. Its
numbers are those of its file of results, of a JSON text that it prints, or those beside names in its lines.
"""

import json
import os
import select
import subprocess

from .. import ending, samples
from ..scenario import printed, result_file
from . import KEPT, client

BEAT_S = 0.1
KEPT_BYTES = 1 << 20  # of its output


class Generator(client.Client):
    """The client that is a command of the user's."""

    def _prepare(self):
        """Do nothing: the command is started later."""

    def _measure(self):
        began = self.clock()
        self.link.ask("ready", setup_s=began - self._began, first_step_s=None, address=self.address[1][0])
        folder = os.path.join(self.root, "scenario")
        folder = folder if os.path.isdir(folder) else self.root
        results = self.job.get("results") and os.path.join(folder, self.job["results"])
        before = results and result_file.state(results)
        code, text = self._run(self._words(), folder)
        took_s = self.clock() - began
        if code:
            how = "was killed by %s" % ending.signal_name(-code) if code < 0 else "ended with exit code %d" % code
            raise client.GaveUp(ending.placed("the load generator " + how, ending.last_words(text)))
        numbers = self._printed(text)
        if results:
            try:
                numbers.update(result_file.read(results, before, lists=False))  # those of each request
                if not numbers:
                    raise ValueError("has no numbers outside of lists")
            except ValueError as error:
                raise client.GaveUp("results: %s: %s" % (self.job["results"], error))
        self._sample()
        row = (self.steps - 1) // self._stride
        for chosen in ([name for name in self.serve["wanted"] if name in numbers], numbers):  # there may be too many
            self._metrics.record(row, self.steps, {name: numbers[name] for name in chosen})
        self.link.ask("look", step=self.steps, last=True)
        self.link.ask("ended", end="completed", errors=[], run_s=took_s)

    def _words(self):
        host = self.place.rpartition(":")[0]
        filled = {"{url}": self.url, "{host}": host, "{port}": str(self._port)}
        words = self.serve["generator"]
        for name, value in filled.items():
            words = [word.replace(name, value) for word in words]
        return words

    def _run(self, words, folder):
        """Run the command to its end; return its exit code and its output."""
        given = {name[len(KEPT) if name.startswith(KEPT) else 0 :]: value for name, value in os.environ.items()}
        try:
            process = subprocess.Popen(
                words, cwd=folder, env=given, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except OSError as error:
            raise client.GaveUp("the load generator cannot be started: %s: %s" % (words[0], os.strerror(error.errno)))
        kept, until = b"", self.clock()
        while True:
            has_ended = process.poll() is not None  # a process that it left behind may hold its output open
            if select.select([process.stdout], [], [], 0.0 if has_ended else max(0.0, until - self.clock()))[0]:
                data = os.read(process.stdout.fileno(), 1 << 16)
                has_ended = not data
                kept = (kept + data)[-KEPT_BYTES:]
            if has_ended:
                return process.wait(), kept.decode("utf-8", "replace")
            if self.clock() >= until:
                until = self.clock() + BEAT_S
                self._sample()

    def _sample(self):
        """Record a row of the server's memory, as long as there is room: the last row has the results."""
        if self.steps >= self._rows * self._stride:
            return
        self.steps += 1
        if not self.steps % self._stride:
            self._row = self.steps // self._stride - 1
            self._probe(self._row, BEAT_S)
        self.header[samples.STARTED], self.header[samples.STEPS] = self.clock(), self.steps

    def _printed(self, text):
        """Return the numbers that it printed: by the patterns of the scenario, or all."""
        patterns = self.job.get("printed")
        if patterns == {}:
            return {}
        if patterns is None:
            found = _json_in(text)
            if found:
                return found
        reader, numbers = printed.reader(patterns, None, measures=True), {}
        for line in text.replace("\r", "\n").split("\n"):
            numbers.update(reader.values(line[: printed.LONGEST]))
        return dict(reader.rest(), **numbers)


def _json_in(text):
    """Return the numbers of a JSON text that is all of the output, or its last line; {} if there is none."""
    for part in (text, (text.strip().split("\n") or [""])[-1]):
        if part.lstrip()[:1] == "{":
            try:
                found = dict(result_file.numbers_of(json.loads(part)))
                return {name: number for name, number in found.items() if number is not None}
            except (ValueError, RecursionError):
                continue
    return {}
