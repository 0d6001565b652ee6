"""What else is new where a finding begins: told beside it, and never judged."""

from __future__ import annotations

from collections.abc import Iterable

from harness.model import Finding, RunResult
from harness.report import signals
from harness.report.clean import shortened
from harness.report.episodes import variant_key

_MOST = 5
_LONGEST = 200


def new_there(findings: Iterable[Finding], result: RunResult) -> list[str]:
    """`log: Could not load libcudnn.so.#`: what was observed at the first bad version of these findings, each once."""
    if not result.observations:
        return []
    begins = {
        (one.series, str(one.lane), variant_key(one.variant), one.after)
        for one in findings
        if one.kind != "first_fixed"
    }
    told = dict.fromkeys(
        f"{signals.signal_of(one.signal).title}: {shortened(one.text, most=_LONGEST)}"
        for one in result.observations
        if (one.series, str(one.lane), variant_key(one.variant), one.after) in begins
    )
    texts = list(told)
    more = len(texts) - _MOST
    return [*texts[:_MOST], *([f"and {more} more"] if more > 0 else [])]
