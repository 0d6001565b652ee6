"""The order in which all reports number findings: `harness issue RUN 1` means the first of them."""

from __future__ import annotations

from dataclasses import replace

from harness.report.text.names import ordered
from tests.players import build


def test_what_another_finding_explains_is_numbered_after_it() -> None:
    """After a search, finding 1 was the processor time, and finding 2 was the leak that explains it."""
    variant = build.POP
    leak = build.finding(build.MULTIDICT, build.HERE, variant, before="6.2.0", after="6.3.0")
    explained = replace(leak, metric="cpu_time", before="6.1.0", consequence_of="memory", verdict="worse")
    fixed = replace(leak, kind="first_fixed", before="6.3.1", after="6.3.2")
    result = build.run(
        [(build.MULTIDICT, [build.HERE], [variant])], lambda *_: build.flat(), findings=[explained, leak, fixed]
    )

    assert ordered(result) == [leak, fixed, explained]
