"""Lists the warnings about a row whose findings are less certain than they look, or leave something out."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class RowWarning(Reason):
    """Says what the findings of a row leave out or rest on."""

    NO_BASELINE = (
        "{series} on {lane}, {variant}: the baseline, {baseline}, was not measured, so a version is bad if it is worse "
        "than the one before, and a series that begins worse than the baseline is not reported"
    )
    IN_OTHER_ROUNDS = (
        "{series} {versions} on {lane}, {variant}: not measured in the same rounds as the others, so step times are "
        "not compared; --fresh measures all versions side by side"
    )
    NO_COMMON_ROUNDS = (
        "{series} {versions} on {lane}, {variant}: no two of them were measured in the same rounds, so step times are "
        "not compared; --fresh measures all versions side by side"
    )
    OTHER_CONDITIONS = (
        "{series} on {lane}, {variant}: some trials are not compared with the others, because they differ in: "
        "{differences}; --fresh measures all under the same conditions"
    )
    NOT_LAUNCHED = (
        "{series} on {lane}: after a bisection, versions that were not launched may differ from their neighbours; "
        "--search full runs them all"
    )

    BUSY_HOST = (
        "{series} on {lane}, {variant}: its step times were measured while other lanes of {host} were busy "
        "(`parallel: true`); run it alone before relying on them"
    )
    MAY_BE_LUCKY = (
        "{series} {versions} on {lane}, {variant}: passed in too few launches to rule out the failure of the "
        "neighbouring version, so the finding names a range of versions; run more launches (`--trials`) to narrow it"
    )
    INSTALLED_OTHERWISE = (
        "{series} on {lane}: in {before}, {package} was installed as {old}, in {after} as {new}, which may be the cause"
    )

    STARTED_AGAIN = "{row}: started again on another machine: {why} (see {folder}/)"
    STARTED_AGAIN_AFTER_FAILURES = (
        "{row}: started again on another machine: {why}; there, {versions} had failed (see {folder}/)"
    )
    SEARCHED = "{row}: searched: {found}"
