"""States in one plain sentence what is at fault (image, card or host), and never claims more than the attribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from harness.model import Attribution, Finding, RunResult
from harness.report.bad_ranges import ordered
from harness.report.text import words
from harness.report.text.faults.fault import Clause, clause_of, place_in_sentence, severity, subject_of, telling_of
from harness.report.text.faults.lane_names import Names, host_name
from harness.report.text.harmless_text import plain

MOST_AT_THE_TOP = 3
_MOST_CONTROLS = 3


def worst_first(result: RunResult) -> list[Attribution]:
    """Return the attributions in order of severity: lasting faults before fixed ones, then by kind and size."""
    return sorted(result.attribution, key=severity)


def numbered(result: RunResult) -> list[Finding]:
    """Return the findings in the order of their numbers, which start at 1: first one finding for each fault, worst
    fault first, as in the reports; then the remaining findings.
    """
    known = set(result.findings)
    telling = (telling_of(attribution).finding for attribution in worst_first(result))
    leads = dict.fromkeys(finding for finding in telling if finding in known)
    by_place = ordered(replace(result, findings=(*leads, *ordered(result))))  # the order survives a reload
    return list(dict.fromkeys([*leads, *by_place]))


def sentence(attribution: Attribution, result: RunResult) -> str:
    """Return a fault's sentence: `signal leaks 24 KiB a step since 22.12, on both cards; not the RTX 4090's fault.`"""
    return sentences([attribution], result)[0]


def sentences(attributions: Sequence[Attribution], result: RunResult) -> list[str]:
    """Return a sentence for each subject and fault text; attributions that share both share a sentence, in which
    lasting faults come before fixed ones, and the oldest first in both groups.
    """
    alike: dict[tuple[str, str], list[Attribution]] = {}
    for attribution in attributions:
        alike.setdefault((subject_of(attribution, result), fault_text(attribution, result)), []).append(attribution)
    return [f"{subject} {_told(ones, fault, result)}" for (subject, fault), ones in alike.items()]


def _told(attributions: Sequence[Attribution], fault: str, result: RunResult) -> str:
    """Return the predicate: `leaks 7.8 KiB a step since 6.3.0, in both variants; and 2.8 KiB a step since 6.5.0. …`."""
    told = sorted(attributions, key=lambda attribution: place_in_sentence(attribution, result))
    layers = {attribution.layer for attribution in told if attribution.metric == "memory"}
    shared = layers.pop() if len(layers) == 1 else None
    clauses = [clause_of(attribution, result) for attribution in told]
    tails = [
        clause.tail + (f" (layer: {plain(attribution.layer)})" if attribution.layer and not shared else "")
        for attribution, clause in zip(told, clauses, strict=True)
    ]
    text = _joined([_part(number, clauses) for number in range(len(clauses))], tails)
    return f"{text}{f'; {fault}' if fault else ''}.{f' Layer: {plain(shared)}.' if shared else ''}"


def _part(number: int, clauses: Sequence[Clause]) -> str:
    """Return one clause, without its verb if the preceding clause has the same verb."""
    clause = clauses[number]
    is_again = number > 0 and clauses[number - 1].kind == clause.kind
    return f"{clause.again if is_again else clause.verb} {clause.when}"


def _joined(parts: Sequence[str], tails: Sequence[str]) -> str:
    """Join the parts with their tails (where, and with which params). A tail that all parts share is written only once,
    at the end.
    """
    if len(set(tails)) == 1:
        return f"{', and '.join(parts)}{tails[0]}"
    return "; and ".join(part + tail for part, tail in zip(parts, tails, strict=True))


def fault_text(attribution: Attribution, result: RunResult) -> str:
    """Return `not the RTX 4090's fault; torch_ops stays good there`; "" if no lane or control needs a clause."""
    names = Names(attribution, result)
    clauses = [_FAULTS[attribution.cause](attribution, names)]
    if attribution.unseen:
        clauses.append(_unseen(attribution, names))
    if attribution.controls:
        there = " there" if names.on(attribution.bad_lanes) else ""
        clauses.append(f"{_controls(attribution.controls)}{there}")
    return "; ".join(filter(None, clauses))


def _controls(names: Sequence[str]) -> str:
    noun = "scenario" if len(names) == _MOST_CONTROLS + 1 else "scenarios"
    shown = words.some_of([plain(name) for name in names], _MOST_CONTROLS, rest=f"{{}} more {noun}")
    return f"{shown} {'stays' if len(names) == 1 else 'stay'} good"


def _unseen(attribution: Attribution, names: Names) -> str:
    variants = len({str(variant) for variant, _ in attribution.unseen})
    lanes = list(dict.fromkeys(lane for _, lane in attribution.unseen))
    have = "has" if variants == 1 else "have"
    return f"{variants} of these {len(attribution.variants)} variants {have} no result {names.on(lanes)}".rstrip()


# ---------------------------------------------------------------- whose fault


def _image(attribution: Attribution, names: Names) -> str:
    clauses = [_cleared(attribution, names)]
    if attribution.open_lanes:
        clauses.append(f"not known for {names.all_of(attribution.open_lanes)}")
    return "; ".join(filter(None, clauses))


def _cleared(attribution: Attribution, names: Names) -> str:
    if len(attribution.bad_lanes) < 2:
        return ""
    if attribution.apart:
        return "the image's fault on each of them"
    if attribution.alike and attribution.bad_lanes[0].gpu is not None:
        return "not the host's fault" if len({lane.host.name for lane in attribution.bad_lanes}) > 1 else ""
    if attribution.cleared and len(attribution.cleared) < len(attribution.bad_lanes):
        return f"not {names.faults(attribution.cleared)}"
    return f"not the {names.kind(attribution.bad_lanes)}'s fault"


def _gpu(attribution: Attribution, names: Names) -> str:
    doubt = _or_of_hosts(attribution)
    return f"{names.good_with(attribution)}: the fault of {names.all_of(attribution.bad_lanes)}{doubt}, not the image's"


def _or_of_hosts(attribution: Attribution) -> str:
    """Return `, or of its host (new)` for hosts without a good card; "" if one kind of card is bad on several."""
    hosts = {lane.host.name for lane in attribution.bad_lanes}
    if len(attribution.machines) > 1:  # the fault is on several machines of a pool
        hosts -= {lane.host.name for lane in attribution.bad_lanes if lane.host.pool}
    doubted = sorted(hosts - {lane.host.name for lane in attribution.good_lanes})
    if not doubted or (attribution.alike and len(hosts) > 1):
        return ""
    if len(doubted) < len(hosts):
        return f", or of {words.together([host_name(host) for host in doubted])}"
    whose = "its" if len(attribution.bad_lanes) == 1 else "their"
    pools = {lane.host.name for lane in attribution.bad_lanes if lane.host.pool}
    machines = [plain(attribution.machines[0] if attribution.machines and host in pools else host) for host in doubted]
    return f", or of {whose} host{'s' if len(doubted) > 1 else ''} ({words.together(machines)})"


def _host(attribution: Attribution, names: Names) -> str:
    hosts = words.together(sorted({host_name(lane.host.name) for lane in attribution.bad_lanes}))
    return f"{names.good_with(attribution)}: the fault of {hosts}, not the image's"


def _interaction(attribution: Attribution, names: Names) -> str:
    if not attribution.good_lanes:
        return "no image is bad on all of them: it takes both the image and the host or card"
    several = len(attribution.bad_lanes) > 1
    lanes = f"one of these {names.kinds(attribution.bad_lanes)}" if several else names.blamed(attribution.bad_lanes)
    return f"{names.good_with(attribution)}: it takes both the image and {lanes}"


def _undecided(attribution: Attribution, names: Names) -> str:
    lanes = names.blamed(attribution.bad_lanes)
    passed = names.passed(attribution.missing[0]) if attribution.missing else ""
    if attribution.doubt == "nothing good" and passed:
        rest = "too few to rule this fault out there, so the cause is undecided: run more of them (`--trials`)"
        return f"{passed}, {rest}"
    doubts = {
        "image or lane": f"whether the image or {lanes} is at fault is undecided",
        "lane or both": f"{names.good_with(attribution)}; whether {lanes} alone is at fault is undecided",
        "nothing good": "there is nothing good to compare with, so the cause is undecided",
    }
    return f"{doubts[attribution.doubt or 'image or lane']}: {_way(attribution, names)}"


def _way(attribution: Attribution, names: Names) -> str:
    """Return what to do to settle the question."""
    if attribution.suspect:
        machine = plain(attribution.suspect)
        return (
            f"everything ran on {machine}, where nothing is good, so {machine} itself may be at fault; "
            f"to settle it, take it out of the pool and sweep again"
        )
    if attribution.missing:
        return names.way_out(attribution.missing[0])
    if attribution.doubt == "nothing good" and names.oldest in attribution.images:
        return "add an older version; if that is bad too, the scenario itself may be the cause"
    return "no cell of this matrix can settle it, so add a host, or a version that runs there"


_FAULTS: dict[str, Callable[[Attribution, Names], str]] = {
    "image": _image,
    "gpu": _gpu,
    "host": _host,
    "interaction": _interaction,
    "undecided": _undecided,
}
