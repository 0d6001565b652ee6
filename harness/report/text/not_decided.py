"""Lists what a run did not measure, decide or check, so that no reader mistakes it for good."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness import amounts
from harness.agent.result_names import IS_EARLIER
from harness.model import GROUPS, METRIC_PREFIX, SIGNALS, Cell, CellResult, Per, RunResult, counted, grouped, unit_per
from harness.model.judged import UNMEASURED
from harness.model.result import SAME_SWEEP, without_stop
from harness.report.text import signal_words
from harness.report.text.harmless_text import plain, shortened, version
from harness.report.text.names import lane_text, some_of, together, variant_text
from harness.report.text.signal_words import HINDERED, WHY_LENGTH, is_needless, is_seen_once, shown_signal, tone, why

_SETUP_BAD = "; to call this bad, set `limits: {setup: bad}`"
_MOST_PLACES = 6


def lines(result: RunResult) -> list[str]:
    """Return the lines on cells and signals that were not decided, or not measured as planned.

    Cells with the same verdict or signal, series, lane and reason share a line. Cells that a search did not need are
    not gaps.
    """
    told = grouped(
        ((what, _place(entry), shortened(reason, most=WHY_LENGTH)), entry)
        for what, reason, entry in [*_undecided(result), *_provisional(result)]
    )
    return [*(_line(*key, some) for key, some in told.items()), *_open_signals(result), *_unprinted(result)]


def gist(result: RunResult) -> str:
    """Return on one line what was not decided, why or what would help with the first of it, what no cell of any
    scenario checked, and which numbers need a limit to be judged; "" if nothing is open."""
    told: dict[str, None] = {}
    cells, worse, remedies = set[str](), set[str](), dict[str, str]()
    for entry in result.cells:
        own = tone(entry.verdict.verdict)
        names: list[str] = [entry.verdict.verdict] if own not in ("good", "bad") and not is_needless(entry) else []
        blind = (name for name, signal in entry.verdict.signals.items() if signal.seen in ("blind", "suspect"))
        names += [shown_signal(name).title for name in signal_words.in_order(blind)] if own == "good" else []
        if names:
            of = worse if own == "good" and entry.verdict.state == "bad" else cells
            of.add(entry.cell.id)
        told |= dict.fromkeys(names)
        blinded = {name: one.remedy for name, one in entry.verdict.signals.items() if names and one.seen == "blind"}
        remedies |= {shown_signal(name).title: remedy for name, remedy in blinded.items() if remedy}
    hindered = {
        (verdict, problem)
        for _, reason, entry in _undecided(result)
        if (problem := reason if (verdict := str(entry.verdict.verdict)) in UNMEASURED else entry.problem)
    }
    if len(hindered) == 1 and not result.attribution:
        ((verdict, problem),) = hindered
        told, remedies = {verdict: None} | told, {verdict: problem} | remedies
    unseen = [[name for name, _ in _unseen(cells)] for cells in _by_scenario(result).values()]
    never = [name for name in next(iter(unseen), []) if all(name in some for some in unseen)]
    numbers = {
        shown_signal(name).title: signal.remedy
        for entry in result.cells
        for name, signal in entry.verdict.signals.items()
        if name.startswith(METRIC_PREFIX) and signal.seen == "none" and signal.remedy and not IS_EARLIER.search(name)
    }
    lacking = f"not judged: {some_of(list(numbers), 2)} ({next(iter(numbers.values()))})" if numbers else ""
    rest = [lacking, _looked(result)]
    if not told:
        said = [f"Not checked: {some_of(never, 3)}" if never else "", *rest]
    else:
        also = f"not checked: {amounts.count(len(never), 'signal')}" if never else ""
        more = next((f"{title}: {remedies[title]}" for title in told if title in remedies), "")
        named = f"{some_of(list(told), 2)}; {more}" if len(told) > 1 and more else more or some_of(list(told), 2)
        both = (cells, ""), (worse, " worse than before")
        where = " and ".join(amounts.count(len(some), "cell") + which for some, which in both if some)
        said = [f"Not decided in {where}: {named}", also, *rest]
    text = "; ".join(filter(None, said))
    return plain(text[:1].upper() + text[1:])


def _looked(result: RunResult) -> str:
    """Return `looked at the first 4,000 steps only`, of programs that no launch ran to their end; "" without any."""
    cut = []
    for cells in _by_scenario(result).values():
        scenario = cells[0].cell.variant.scenario
        trials = [trial for entry in cells for trial in entry.trials if trial.ended_well and trial.last_step]
        is_cut = trials and all(trial.run_s is None for trial in trials)
        if is_cut and scenario.script is None and not scenario.limits.exit_only:
            cut.append((max(trial.last_step for trial in trials), cells[0].verdict.per))
    return f"looked at the first {amounts.count(max(cut)[0], counted(max(cut)[1]))} only" if cut else ""


def _undecided(result: RunResult) -> Iterator[tuple[str, str, CellResult]]:
    host_problems = {state.problem for state in result.hosts}
    fail_alone = set(_fails_alone(result))
    for entry in result.cells:
        verdict = entry.verdict.verdict
        known = tone(verdict) in ("good", "bad")
        reason = entry.problem if known else why(entry)
        if (known and not reason) or reason in host_problems or is_needless(entry):
            continue
        name = f"{verdict}{', launched once' if is_seen_once(entry) else ''}"
        more = _more_steps(entry) if tone(verdict) == "unsure" else ""
        remedy = _SETUP_BAD if entry.cell in fail_alone else more
        reason = shortened(reason, most=WHY_LENGTH - len(remedy)) + remedy
        yield f"{name}, {HINDERED}" if known else name, reason, entry


def _more_steps(entry: CellResult) -> str:
    """Return how longer launches would settle what is open: a program that ends by itself must do more, and any other
    gets more time, if that ran out, or a larger budget. "" for launches that failed, and for a command that is ended,
    because it counts its own steps.
    """
    if not entry.verdict.steps or entry.verdict.failed:
        return ""
    if ends := [trial.last_step for trial in entry.trials if trial.run_s is not None]:
        made = amounts.count(max(ends), counted(entry.verdict.per))
        return f"; a longer run would settle it, because the program ends by itself after {made}"
    scenario = entry.cell.variant.scenario
    if scenario.steps.time_s is not None and entry.verdict.steps < scenario.steps.budget:
        return "; more time (`steps: {time: …}`, or `--step-time` of `try`) would settle it"
    return "" if scenario.command else "; more steps (`budget`) would settle it"


def _fails_alone(result: RunResult) -> Iterator[Cell]:
    """Yield the cells that failed before the first step although another version of the row did not.

    The limit `setup: bad` would call such a cell bad. Scenarios with `setup: untested` are left out, and so are those
    judged by their exit code: exit code 125 states that the version cannot be tested.
    """
    launched = [entry for entry in result.cells if entry.verdict.trials]  # if `untested`, they failed before a step
    rows = grouped(((each.cell.image.series, each.cell.lane, each.cell.variant), each) for each in launched)
    for row in rows.values():
        failed, scenario = [one.cell for one in row if one.verdict.verdict == "untested"], row[0].cell.variant.scenario
        if len(failed) < len(row) and scenario.limits.setup_bad is None and not scenario.limits.exit_only:
            yield from failed


def _provisional(result: RunResult) -> Iterator[tuple[str, str, CellResult]]:
    for entry in result.cells:
        if entry.verdict.provisional and tone(entry.verdict.verdict) in ("good", "bad"):
            few = f"fewer launches than a verdict needs; {SAME_SWEEP}"
            reason = without_stop(entry.stopped) if entry.stopped else few
            yield f"{entry.verdict.verdict} so far", reason, entry


def _open_signals(result: RunResult) -> Iterator[str]:
    """Yield lines on the blind and suspect signals of cells that the lines above do not cover: those tell the memory
    and outcome of an undecided cell, and all signals of a provisional one. Of blind cells, the blindest is told.
    """
    told: dict[tuple[str, str, str, str], list[CellResult]] = {}
    for entry in result.cells:
        own = tone(entry.verdict.verdict)
        above = ("memory", "outcome") if own != "good" else ()
        for name in signal_words.in_order(entry.verdict.signals):
            signal = entry.verdict.signals[name]
            is_open = signal.seen in ("blind", "suspect") and own != "none" and not entry.verdict.provisional
            if is_open and name not in above:
                grows = signal.seen == "suspect" and shown_signal(name).kind == "growth"
                reason = signal_words.reason(signal) + (_more_steps(entry) if grows else "")
                told.setdefault((name, signal.seen, _place(entry), reason), []).append(entry)
    for (name, seen, place, reason), entries in told.items():
        blindest = max((entry.verdict.signals[name] for entry in entries), key=lambda signal: signal.visible or 0.0)
        state = (
            f"{shown_signal(name).title}: {seen}"
            if seen == "suspect"
            else signal_words.state_text(name, blindest, entries[0].verdict.per)
        )
        yield _line(state, place, reason, entries)


def _place(entry: CellResult) -> str:
    return f"{plain(entry.cell.image.series)} on {lane_text(entry.cell.lane)}"


def _line(what: str, place: str, reason: str, entries: Sequence[CellResult]) -> str:
    cells = {entry.cell for entry in entries}
    versions = list(dict.fromkeys(version(entry.cell.image.version) for entry in entries))
    variants = list(dict.fromkeys(variant_text(entry.cell.variant) for entry in entries))
    some = some_of(versions, len(versions) if len(versions) <= 4 else 3)
    if len(cells) < len(versions) * len(variants):  # some variants of some versions only
        some = f"{amounts.count(len(cells), 'cell')} of {some}"
    which = variants[0] if len(variants) == 1 else f"{len(variants)} variants"
    return f"{what}: {some} ({place}, {which}){': ' if reason else ''}{reason}"


def _unprinted(result: RunResult) -> Iterator[str]:
    """Yield a line for each program whose `printed:` has patterns that no output line matched in any launch."""
    for name, cells in _by_scenario(result).items():
        seen = {signal for entry in cells for signal in entry.verdict.signals}
        asked = cells[0].cell.variant.scenario.printed or ()
        lacking = [plain(repr(pattern)) for metric, pattern in asked if f"{METRIC_PREFIX}{metric}" not in seen]
        if lacking and any(trial.last_step for entry in cells for trial in entry.trials):
            outputs = (trial.output for entry in cells for trial in entry.trials)
            texts = (text for output in outputs for text in (output.head, output.middle, output.tail))
            printed = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
            line = max(printed, key=lambda line: any(map(str.isdigit, line)), default="")  # one with a number, if any
            example = f"it printed, e.g.: {shortened(line, most=WHY_LENGTH)}" if line else "it printed nothing"
            yield f"printed: {plain(name)}: no line matched {together(lacking)}; {example}"


def slow_growth(result: RunResult) -> list[str]:
    """Return a line for each row with good cells whose growth is certain, and between half the limit and the limit.

    `s 1.1, 1.2 on local, parse: grows 0.49 KiB/step, below the limit of 0.5: "leak: 0.25KiB" would report it`
    """
    rows: dict[tuple[str, float, Per], list[tuple[str, float]]] = {}
    for entry in result.cells:
        verdict = entry.verdict
        limit = verdict.of("memory").limit or entry.cell.variant.scenario.limits.leak_kib_per_step
        if verdict.grows_slowly():
            of = f"{_place(entry)}, {variant_text(entry.cell.variant)}", limit, verdict.per
            rows.setdefault(of, []).append((version(entry.cell.image.version), verdict.of("memory").value or 0.0))
    return [
        f"{place}: {some_of([name for name, _ in some], 8)} {'grows' if len(some) == 1 else 'grow'} by up to "
        f"{amounts.rough(max(rate for _, rate in some))} {unit_per(SIGNALS['memory'], per)}, below the limit of "
        f'{limit:g}: "leak: {limit / 2:g}KiB" would report it'
        for (place, limit, per), some in rows.items()
    ]


# ---------------------------------------------------------------- what a good verdict does not cover


def quiet(result: RunResult) -> list[str]:
    """Return lines on the limits of the report: the smallest leak that was ruled out, the signals that were not
    checked, and the cells that were not needed.
    """
    known_good = (entry.verdict for entry in result.cells if entry.verdict.verdict == "flat")
    flat = [verdict for verdict in known_good if not verdict.grows_slowly()]
    known = [(found, verdict.steps) for verdict in flat if (found := verdict.of("memory").visible)]
    ruled_out = ""
    if known:
        unit, steps = unit_per(SIGNALS["memory"], flat[0].per), min(steps for _, steps in known)
        bound = amounts.in_unit(max(bound for bound, _ in known), unit)
        until = f"{counted(flat[0].per)} {steps:,}"
        ruled_out = f"flat rules out a leak above {bound} up to {until}; a smaller leak could go unnoticed"
    of_lines = grouped(
        (_step_in_words(cells), plain(name))
        for name, cells in _by_scenario(result).items()
        if any(one.verdict.per in ("line", "request") for one in cells)
    )
    steps_are = [f"in {together(names)}, a step is {step}" for step, names in of_lines.items()]
    return list(filter(None, (ruled_out, *_step_times(result), *steps_are, _not_checked(result), _needless(result))))


def _step_times(result: RunResult) -> Iterator[str]:
    """Yield `on here, a rise in step time above 3.5 % is ruled out (launches in slices: 12 of 16)`."""
    seen = ((entry.verdict.of("step_time").visible, entry) for entry in result.cells)
    known = grouped(
        (lane_text(each.cell.lane), (share, each)) for share, each in seen if share is not None and share < math.inf
    )
    for lane, some in known.items():
        shown = amounts.share_text(max(share for share, _ in some))
        sliced = [trial.took_turns for _, entry in some for trial in entry.trials]
        in_slices = f" (launches in slices: {sum(sliced)} of {len(sliced)})"
        yield f"on {lane}, a rise in step time above {shown} is ruled out{in_slices}"


def _step_in_words(cells: Sequence[CellResult]) -> str:
    """Return what a step is: a request, a line of output, or one or several counts of a progress bar."""
    if any(one.verdict.per == "request" for one in cells):
        return "a request to the server"
    shapes = {trial.facts.step_shape or "" for entry in cells for trial in entry.trials if trial.last_step}
    bars = [re.search(r" bar(?: by (\d+))?$", shape) for shape in shapes]
    if not bars or None in bars:
        return "a line that the program prints, from the third such line on"
    by = max(int(bar.group(1) or 1) for bar in bars if bar is not None)
    return "a count of its progress bar" if by == 1 else f"{by} counts of its progress bar"


def _needless(result: RunResult) -> str:
    """Return a line on the cells that were not needed, by row; "" if all were needed."""
    entries = list(filter(is_needless, result.cells))
    skipped = next((entry.skipped for entry in entries), None)
    if skipped is None:
        return ""
    rows = grouped(((_place(one), variant_text(one.cell.variant)), version(one.cell.image.version)) for one in entries)
    variants = grouped(((place, some_of(names, 8)), variant) for (place, variant), names in rows.items())
    reason = "not needed by the search" if skipped.by == "search" else plain(skipped.why)
    told = [f"{place}, {some_of(which, 2)}: {names}" for (place, names), which in variants.items()]
    more = ["…"] if len(told) > _MOST_PLACES else []
    cells = f"{len(entries):,} of {amounts.count(len(result.cells), 'cell')}"
    return f"{reason}: {cells} ({'; '.join([*told[:_MOST_PLACES], *more])})"


def _not_checked(result: RunResult) -> str:
    """Return `not checked: peak GPU memory (no GPU); in train: results (the scenario returns none)`: the signals that
    no cell of a scenario checked. If no signal of a group was checked, all for the same reason, the group is named.
    """
    unseen = {plain(name): _unseen(cells) for name, cells in _by_scenario(result).items()}
    if not unseen:
        return ""
    everywhere = [one for one in next(iter(unseen.values())) if all(one in some for some in unseen.values())]
    same = grouped((_with_reasons(one for one in some if one not in everywhere), name) for name, some in unseen.items())
    parts = [_with_reasons(everywhere), *(f"in {some_of(names, 3)}: {told}" for told, names in same.items() if told)]
    return f"not checked: {'; '.join(filter(None, parts))}" if any(parts) else ""


def _by_scenario(result: RunResult) -> Mapping[str, list[CellResult]]:
    """Return the cells that were launched, by the name of their scenario."""
    return grouped((entry.cell.variant.scenario.name, entry) for entry in result.cells if entry.verdict.trials)


def _with_reasons(unseen: Iterable[tuple[str, str]]) -> str:
    by_reason = grouped((reason, name) for name, reason in unseen)
    return ", ".join(f"{together(names)} ({reason})" for reason, names in by_reason.items())


def _unseen(cells: Sequence[CellResult]) -> list[tuple[str, str]]:
    """Return the signals and groups that none of these cells of one scenario checked, each with the reason."""
    scenario, reasons = cells[0].cell.variant.scenario, {}
    is_recorded = any("outcome" in entry.verdict.signals for entry in cells)
    signals = [signal for signal in SIGNALS.values() if scenario.serve or not signal.of_server]
    judged = [signal for signal in signals if signal.kind != "observation"]
    for signal in judged:
        seen = [entry.verdict.signals[signal.name] for entry in cells if signal.name in entry.verdict.signals]
        if signal.limit is not None and scenario.limits.of(signal.name) is None:
            reasons[signal.name] = "the limit is none"
        elif is_recorded and all(one.seen == "none" for one in seen):
            reasons[signal.name] = next((plain(one.why) for one in seen if one.why), "not measured")
    found: list[tuple[str, str]] = []
    for group in GROUPS:
        names = [signal.name for signal in judged if signal.group == group]
        why_not = {name: reasons[name] for name in names if name in reasons}
        if len(why_not) > 1 and len(why_not) == len(names) and len(set(why_not.values())) == 1:
            found.append((signal_words.GROUP_NAMES[group], next(iter(why_not.values()))))
        else:
            found += [(shown_signal(name).title, reason) for name, reason in why_not.items()]
    if is_recorded and not any(name.startswith(METRIC_PREFIX) for entry in cells for name in entry.verdict.signals):
        none = "the scenario returns none"
        if scenario.script is None:
            logs = "logs none, and " if scenario.is_program else ""
            none = f"in the steps that it made, the program {logs}prints none under the name of a result"
        if scenario.serve:
            none = "no reply has one under the name of a result"
        found.append((signal_words.GROUP_NAMES["values"], none))
    return found
