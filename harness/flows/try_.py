"""Answers `harness try` and `demo`: writes a matrix file, fits it to its first launches, and sweeps it."""

from __future__ import annotations

import itertools
import math
import os
import re
import shlex
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import NoReturn

from harness import amounts, doors
from harness.errors import HarnessError, InfrastructureError, Interrupted, MatrixError, Undecided, UsageError
from harness.flows.sweep import SweepOptions, selected
from harness.judge.launches import over_time
from harness.matrix import load_matrix
from harness.matrix.draft import Draft, text
from harness.matrix.draft.job import called_in_loops, functions, near_command
from harness.matrix.draft.options import option_of
from harness.matrix.draft.series import safe
from harness.model import Plan, RunResult, Stop, Trial, Trials, grouped
from harness.model.measured import LEAST_STEPS
from harness.model.watching import Say
from harness.registry.bounded_http import RegistryTrouble
from harness.run import owners
from harness.store import RunDirectory

Sweep = Callable[[Plan, SweepOptions], RunResult]
"""Sweeps a plan and writes its reports."""


def tried(
    draft: Draft,
    options: SweepOptions,
    environ: Mapping[str, str],
    *,
    sweep: Sweep,
    stopped: threading.Event,
    say: Say,
) -> tuple[RunResult, str | None]:
    """Write the draft's matrix file, fit its budget and its timeout to the first launches, and sweep it. Return the
    result, and a note that belongs below it.

    The oldest version is launched before all others: a program twice, because the second launch of a version is the
    first to run the whole budget. The sweep takes over these launches. Raises UsageError if what the user named as a
    step was not seen, and another error if the newest version fails before its first step in the same way as the
    oldest, or if nothing was launched. Then the file and the runs are removed."""
    matrix = write(draft, out=options.out)
    check(draft, matrix, environ)
    attempt = _Attempt(matrix=matrix, options=options, environ=environ, sweep=sweep, say=say)
    if "serve" in draft.job.entry:  # it does not end by itself, so this is never short
        say(on_first_launch(draft))
    try:
        first = attempt.launched(0, 2 if draft.job.source else 1)
    except Interrupted:  # nothing was started
        matrix.unlink(missing_ok=True)
        raise
    try:
        check_steps(draft, first)
        if fails_at_once(draft, first) and not stopped.is_set():
            check_both(draft, first, attempt.launched(-1, 1))
    except (UsageError, Undecided) as error:
        attempt.refuse(error)
    if (note := note_on_whole_run(draft, first)) is not None:
        say(note)
    if stopped.is_set() or first.hosts[0].problem:
        attempt.refuse_unlaunched()
        if stopped.is_set():
            raise Interrupted("interrupted")
    attempt.matrix, fitted = fit(draft, matrix, first, out=options.out)
    if fitted.budget != draft.budget:
        say(f"the program ends by itself after {fitted.budget} steps; this is now the budget in the matrix")
    if fitted.timeout_s is not None:
        limit = f"a launch now ends after {fitted.timeout_s:g} s at the latest: timeout in the matrix"
        say(f"the first launch was short, so {limit}")
    result = attempt.swept(selected(attempt.matrix, options, environ), options)
    attempt.refuse_unlaunched()
    runs = f"the runs of {draft.job.name} are in {result.directory.parent}"
    search = f" --search {options.search}" if any(map(result.plan.searched, result.plan.rows)) else ""
    say(f"the matrix is {attempt.matrix}, and {runs}; edit it, and run it with: harness sweep {attempt.matrix}{search}")
    return result, note_on_peaks(draft, result)


@dataclass(kw_only=True)
class _Attempt:
    """One call: its matrix file, and its runs so far, all of one matrix."""

    matrix: Path
    options: SweepOptions
    environ: Mapping[str, str]
    sweep: Sweep
    say: Say
    runs: list[RunResult] = field(default_factory=list)

    def launched(self, version: int, launches: int) -> RunResult:
        """Launch one version, given by its place among them, this number of times."""
        some = replace(self.options, stop=Stop(), trials=Trials(least=launches, most=launches))
        whole = load_matrix(self.matrix, environ=self.environ)
        chosen = tuple(replace(series, images=(series.images[version],)) for series in whole.series)
        later = tuple(image for series in whole.series for image in series.images if not self.runs)
        return self.swept(replace(some.select(replace(whole, series=chosen)), rehearsal=True, later=later), some)

    def swept(self, plan: Plan, options: SweepOptions) -> RunResult:
        self.runs.append(self.sweep(plan, options))
        return self.runs[-1]

    def refuse_unlaunched(self) -> None:
        """Refuse the call if its runs launched nothing."""
        if (problem := unlaunched(self.runs)) is not None:
            self.refuse(problem)

    def refuse(self, error: HarnessError) -> NoReturn:
        """Remove the matrix file and the runs, and raise `error`."""
        self.matrix.unlink(missing_ok=True)
        remove_runs(self.runs)
        doors.after_runs(self.options.out, say=self.say)
        raise error


def unlaunched(results: Sequence[RunResult]) -> HarnessError | None:
    """Return the error that explains why these runs launched nothing; None if they launched something."""
    if any(cell.trials for result in results for cell in result.cells):
        return None
    last = results[-1]
    problems = [host.problem for host in last.hosts if host.problem]
    problems = problems or [cell.problem for cell in last.cells if cell.problem]
    problems = problems or [cell.verdict.why for cell in last.cells if cell.verdict.verdict == "incompatible"]
    if not problems:
        return Interrupted("interrupted before a launch ended")
    return InfrastructureError("nothing was launched: " + "\n".join(dict.fromkeys(problems)))


def remove_runs(results: Sequence[RunResult]) -> None:
    """Remove the runs of a call that was refused. All of them belong to one matrix."""
    for result in results:
        shutil.rmtree(result.directory, ignore_errors=True)
    folder = results[0].directory.parent
    if runs := sorted(folder.glob("[0-9]*")):
        RunDirectory(runs[-1]).point_latest()
    else:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- files


def write(draft: Draft, *, out: Path) -> Path:
    """Write the draft's matrix file into the folder of the runs and return its path. The same draft gets the same file.
    A file with other content, such as an edited one, is never overwritten. Raises UsageError."""
    name = f"try-{draft.job.name}"
    wanted = text(draft, name=name)
    for number in itertools.count(1):
        path = out / f"{name}{f'-{number}' if number > 1 else ''}.yaml"
        if not path.exists():
            write_new({path: wanted}, otherwise="choose another --out")
        if _has(path, wanted):
            return path
    raise AssertionError("numbers do not end")


def write_matrix(draft: Draft, path: Path, environ: Mapping[str, str]) -> None:
    """Write the draft's matrix file to `path`, for the user to keep and edit. Raises UsageError."""
    write_new({path: text(draft, name=safe(path.stem))}, otherwise="choose another name for --write")
    check(draft, path, environ)


def check(draft: Draft, matrix: Path, environ: Mapping[str, str]) -> None:
    """Check a matrix file that was just written. If it is refused, remove it, and raise UsageError. The message names
    the options, and no line, key or path of the file: the user typed a command line and never saw the file.
    """
    try:
        for series in load_matrix(matrix, environ=environ).series:
            if len(series.images) < 2:
                raise MatrixError(f"only {series.images[0].version} is in this range; name a wider one")
    except MatrixError as error:
        matrix.unlink(missing_ok=True)
        home = os.path.relpath(draft.typed.folder, matrix.parent)  # from which the user typed each path
        told = ((option_of(one.key, draft.typed), one.text.removeprefix(f"{home}/")) for one in error.errors)
        raise UsageError("\n".join(dict.fromkeys(": ".join(filter(None, each)) for each in told))) from error
    except RegistryTrouble as error:
        matrix.unlink(missing_ok=True)
        raise InfrastructureError(f"{error.text}; or list the tags, of images that this machine has") from error


def write_new(files: Mapping[Path, str], *, otherwise: str) -> None:
    """Write files that do not exist yet. Raises UsageError, which ends with the remedy `otherwise`, if a file exists or
    cannot be written; then none is left.
    """
    made: list[Path] = []
    try:
        if taken := [str(path) for path in files if path.exists()]:
            raise UsageError(f"{', '.join(taken)}: already exist{'s' if len(taken) == 1 else ''}; {otherwise}")
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as out:
                made.append(path)
                out.write(text)
    except (OSError, UnicodeEncodeError) as error:
        for path in made:
            path.unlink(missing_ok=True)
        if isinstance(error, UnicodeEncodeError):
            line = error.object[: error.end].rpartition("\n")[2]
            name = line.rpartition('"')[2] + error.object[error.end :].partition('"')[0]
            raise UsageError(f"{name!a}: is not UTF-8, as the text of a matrix file is; rename it") from error
        place = error.filename or next(iter(files)).parent
        raise UsageError(f"{place}: cannot write: {error.strerror}; {otherwise}") from error


def _has(path: Path, text: str) -> bool:
    """Return whether a file exists and has this content."""
    try:
        return path.is_file() and path.stat().st_size == len(text.encode()) and path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeError):
        return False


DEMO_MATRIX = "quickstart.yaml"
DEMO_FILES = (DEMO_MATRIX, "scenarios/multidict_headers.py", "scenarios/regex_cache.py")


def write_demo(folder: Path) -> Path:
    """Write the demo into a folder and return the path of its matrix. Files of an earlier call stay. Raises UsageError
    if a file of the same name has other content."""
    package = Path(str(files("harness")))
    installed = package / "data" / "demo"
    source = installed if installed.is_dir() else package.parent / "examples"
    if missing := [name for name in DEMO_FILES if not (source / name).is_file()]:
        raise UsageError(f"{source / missing[0]}: this installation lacks the demo's files; install the harness again")
    texts = {folder / name: (source / name).read_text(encoding="utf-8") for name in DEMO_FILES}
    write_new({path: text for path, text in texts.items() if not _has(path, text)}, otherwise="name another --folder")
    return folder / DEMO_MATRIX


# ---------------------------------------------------------------- what the first launch shows


TRAINS = re.compile("train|step|batch|update|fit|epoch", re.IGNORECASE)
UP_TO_A_NUMBER = re.compile(r"(\D{1,40}?)[-+]?(\d{1,15})")
NEEDS_TERMINAL = re.compile(r"\btty\b|not a terminal|inappropriate ioctl", re.IGNORECASE)
SPECIAL = re.compile(r"[][\\.^$*+?{}|()]")
MOST_NAMES = 6
RECURS = 3
"""Lines with the same beginning from which a pattern of them is suggested: fewer steps say nothing."""
SPARE_S = 60.0
OWN_FOLDER = re.compile(rf"/[^\s'\":]*/{owners.PREFIX}[^/\s'\":]+")
SETTLED_S = 120.0
"""Seconds that all launches may take, A/A replicates included, if each version gets more than usual."""
MOST_LAUNCHES = 16
LONGER = 10.0
"""A launch may take LONGER times the time that the first launches took, and SPARE_S more."""


def on_first_launch(draft: Draft) -> str:
    """Return what the first launch of a server does, and how long it may take."""
    sent = "the load generator runs"
    if draft.has_budget:
        sent = f"requests are sent for at most {amounts.duration(draft.typed.step_time_s)} (--step-time)"
    whole = amounts.duration(draft.longest_s)
    return f"first, the oldest version alone: once it is ready, {sent}; this launch ends after {whole} at the latest"


def check_steps(draft: Draft, result: RunResult) -> None:
    """Raise an error, with the option that helps, if nothing in the first launch counted as a step: UsageError if the
    user named what a step is, else Undecided, because the program did not end by itself either.
    """
    trial = _first(result)
    if trial is None or not trial.stepless:
        return
    remedies = [_by_pattern(_pattern(result))]
    if trial.failure.remedy == "command":
        remedies = ["start that program", *remedies]
    elif trial.failure.remedy:
        remedies = [_by_function(draft), *remedies]
    if trial.failure.remedy == "longer":
        remedies = ["let it do less, so that it ends by itself and its whole run is compared", *remedies]
    link = "; or " if draft.job.source and not trial.failure.remedy else "; "
    named = "steps_are" in draft.more or not draft.job.source
    raise (UsageError if named else Undecided)(f"{_named(draft)}: {_said(trial)}{link}{', or '.join(remedies)}")


def fails_at_once(draft: Draft, result: RunResult) -> bool:
    """Return whether the first launch failed before its first step: the version or the command may be at fault. A
    command that runs in place may fail anywhere: it fails of itself more often than the user's own machine does."""
    trial = _first(result)
    return trial is not None and (trial.end == "setup" or (draft.series.in_place and not trial.ended_well))


def check_both(draft: Draft, oldest: RunResult, newest: RunResult) -> None:
    """Raise an error if the oldest and the newest version fail in the same way before the first step, so that there is
    nothing to compare: UsageError if the words of Python or the system show that a module or a file is missing."""
    first, last = _first(oldest), _first(newest)
    if first is None or last is None or last.end != first.end or _said(last) != _said(first):
        return
    what, remedy = _said(first), ""
    if draft.series.in_place and NEEDS_TERMINAL.search(what):
        remedy = "it wants a terminal and has none: leave out -t or -it, or give it its option for scripts"
    if "No such file or directory" in what and draft.series.in_place:
        remedy = "it runs in this folder, as it is: name a file that is there"
    elif "No such file or directory" in what:
        remedy = (
            "if that is a file of this folder, also copy it in: --file NAME; "
            "if it is in a folder above, start in the folder that contains both"
        )
    started = (draft.job.entry.get("command") or draft.job.entry.get("serve") or ("",))[0]
    if started and what.endswith(f"cannot start {started}: No such file or directory"):
        near = near_command(started)
        remedy = f"{f'did you mean {near!r}? ' if near else ''}name a command that all versions have"
    if "No module named" in what and "install" in draft.series.entry:
        remedy = "if that is a package, also install it: --with PACKAGE"
    elif "No module named" in what and draft.series.in_place:
        remedy = "it runs as it is: install it in the Python that runs here"
    elif "No module named" in what:
        remedy = f"add it to the {'images' if draft.series.needs_containers else 'requirement files'}"
    if not remedy:
        raise Undecided(
            f"{_named(draft)}: fails alike in the oldest and in the newest version, so there is nothing to compare: "
            f"{what}"
        )
    raise UsageError(f"{_named(draft)}: fails in the oldest and in the newest version: {what}; {remedy}")


def note_on_whole_run(draft: Draft, result: RunResult) -> str | None:
    """Return a note if only the whole run of a launch can be judged, else None."""
    trial = _first(result)
    finer = "" if trial is None else _finer(draft, result)
    if trial is None or not trial.is_one_figure or not (draft.job.source or finer):
        return None
    if trial.ended_early:
        made = f"made {trial.last_step} step{'s' if trial.last_step > 1 else ''} and ended"
        least = f"needs at least {LEAST_STEPS} steps"
        if over_time(trial) is None:
            return f"{_named(draft)}: {made}; growth {least}, so everything else is judged"
        return f"{_named(draft)}: {made}; of growth, only that of memory is judged, because any other {least}"
    held = "" if draft.job.source is None else "what it holds and leaves on the disk at its end, "
    memory = "peak memory" if over_time(trial) is None else "peak memory and how memory grows over time"
    figures = f"run time, processor time, {memory}, output, {held}and printed numbers"
    hint = f"; {finer} makes it finer" if finer else ""
    return f"{_named(draft)}: no step was seen, so each launch is one figure: {figures}{hint}"


def note_on_peaks(draft: Draft, result: RunResult) -> str | None:
    """Return what tells a leak from a larger peak, if only the whole run was judged and a peak of memory became worse;
    None if that is no question, or if no option is known to help."""
    trial = _first(result)
    unknown = {"gpu_peak"} if trial is not None and over_time(trial) is not None else {"peak_memory", "gpu_peak"}
    peaks = unknown & {finding.metric for finding in result.findings}
    finer = _finer(draft, result) if peaks and trial is not None and trial.is_one_figure else ""
    return f"no step was seen, so a leak shows only as a larger peak: {finer} tells them apart" if finer else None


def _finer(draft: Draft, result: RunResult) -> str:
    """Return the options that let a launch without steps be judged step by step; "" if none is known."""
    pattern, trial = _pattern(result), _first(result)
    if draft.job.source is None:
        is_whole = "command" in draft.job.entry and {"step_pattern", "judge"}.isdisjoint(draft.job.entry)
        return f"--step-pattern {pattern}" if pattern and is_whole else ""
    if trial is None or trial.last_step > 1:
        return ""
    looped = called_in_loops(draft.job.source)
    function = next((name for name in _functions(draft) if name.rpartition(".")[2] in looped), "")
    finer = [f"--steps-are {draft.job.module}:{function}"] if function else []
    return " or ".join([*finer, *([f"--step-pattern {pattern}"] if pattern else [])])


def fit(draft: Draft, matrix: Path, first: RunResult, *, out: Path) -> tuple[Path, Draft]:
    """Return the matrix file and its draft after the first launches. The new budget is the fewest steps after which the
    program ended by itself, if these are enough. The new timeout suits the time that the launches took, if it is
    shorter than the default: a version that hangs shall not take the default timeout in every launch. Short launches
    may be as many as SETTLED_S allow, so that noisy times are decided. Raises UsageError.
    """
    trials = [trial for cell in first.cells for trial in cell.trials]
    own = min((trial.last_step for trial in trials if trial.ended_early), default=0)
    known = replace(draft, budget=own) if own >= LEAST_STEPS else draft
    if took_s := [took for trial in trials if (took := _took_s(trial)) is not None]:
        steps_s = draft.typed.step_time_s if draft.has_budget else 0.0  # a slower version may use up this time
        timeout_s = math.ceil((steps_s + SPARE_S + LONGER * max(took_s)) / 10) * 10.0
        known = replace(known, timeout_s=timeout_s) if timeout_s < draft.longest_s else known
        launches = SETTLED_S / max(*took_s, 1.0) / (1 + len(first.plan.rows[0].cells))
        known = replace(known, most=min(max(draft.most, int(launches)), MOST_LAUNCHES))
    if known == draft:
        return matrix, draft
    matrix.unlink(missing_ok=True)
    return write(known, out=out), known


def _took_s(trial: Trial) -> float | None:
    """Return the seconds that a launch took, or up to its last step if it hung; None if they are not known."""
    if trial.ended_well and not trial.out_of_time:
        return trial.duration_s
    column = trial.figures("step_s") if trial.end == "hang" else None
    step_s = [] if column is None else [took for took in column.tolist() if math.isfinite(took)]
    start_s = (trial.facts.setup_s or 0.0) + (trial.facts.first_step_s or 0.0)
    return start_s + sum(step_s) / len(step_s) * trial.last_step if step_s else None


def _first(result: RunResult) -> Trial | None:
    return next((trial for cell in result.cells for trial in cell.trials), None)


def _said(trial: Trial) -> str:
    """Return the last line of the trial's message, which says how the trial ended, with `…` for the launch's folder."""
    return OWN_FOLDER.sub("…", (trial.message.splitlines() or [""])[-1])


def _named(draft: Draft) -> str:
    """Return the program as it was typed, or the command."""
    entry, source = draft.job.entry, draft.job.source
    words = entry.get("command") or entry.get("serve", ())
    return shlex.join(words) if source is None else str(entry.get("module", source.name))


def _by_function(draft: Draft) -> str:
    """Return advice to name a function as the step, with the functions that the program defines as examples."""
    job, names = draft.job, _functions(draft)
    if not names:
        return f"move the code of one step into a function and name it: --steps-are {job.module}:FUNCTION"
    which = "another" if isinstance(draft.more.get("steps_are"), Mapping) else "the"
    example, known = f"--steps-are {job.module}:{names[0]}", ", ".join(names[:MOST_NAMES])
    return f"name {which} function that makes a step, such as {example} (it defines {known})"


def _functions(draft: Draft) -> list[str]:
    """Return the functions that the program defines, without the one that the user named: first those that a loop
    calls, and among these the ones whose names say that they train."""
    asked = draft.more.get("steps_are")
    assert draft.job.source is not None, "commands have no functions"
    typed = str(asked["function"]).partition(":")[2] if isinstance(asked, Mapping) else None
    names = [name for name in functions(draft.job.source) if name != typed]
    looped = called_in_loops(draft.job.source)
    return sorted(names, key=lambda name: (name.rpartition(".")[2] not in looped, not TRAINS.search(name)))


def _by_pattern(pattern: str) -> str:
    """Return advice to count lines of output as steps."""
    if not pattern:
        return "let it print a number at each step, and count these lines: --step-pattern REGEX"
    return f"count each matching line of its output as a step: --step-pattern {pattern}"


def _pattern(result: RunResult) -> str:
    """Return a pattern, quoted for a shell, of the most common beginning of a line that the first launch printed again
    and again; "" if there is none. A progress bar, which is drawn anew when time has passed, is no such line, and
    neither is a warning, which names a file in the launch's folder, a line whose beginning has the version or a param,
    which the others lack, or one of a list of amounts, whose numbers often fall."""
    cell, output = next((each.cell, each.trials[0].output) for each in result.cells if each.trials)
    words = "|".join(re.escape(str(word)) for word in (cell.image.version, *dict(cell.variant.params).values()))
    differs = re.compile(rf"\D{{0,40}}(?<!\w)(?=\D)(?:{words})(?!\w)", re.IGNORECASE)
    lines = (line.removesuffix("\r") for line in (output.tail or output.head).split("\n"))
    own = (line for line in lines if line.isprintable() and not OWN_FOLDER.search(line) and not differs.match(line))
    begun = grouped((found[1], int(found[2])) for line in own if (found := UP_TO_A_NUMBER.match(line)))
    named = [text for text in begun if any(map(str.isalpha, text))]
    usual = max(named, key=lambda text: len(begun[text]), default="")
    numbers = begun.get(usual, ())
    if len(numbers) < RECURS or 3 * sum(new < old for old, new in itertools.pairwise(numbers)) > len(numbers):
        return ""
    escaped = SPECIAL.sub(r"\\\g<0>", usual)
    return shlex.quote("^" + escaped.replace("'", "."))  # a quote inside quotes would be hard to read
