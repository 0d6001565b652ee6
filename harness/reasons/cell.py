"""Lists the reasons for the verdict on one cell, for what its launches show, and for another trial of it."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class CellReason(Reason):
    """Says what the trials of a cell show together, and what the verdict on one of them leaves out."""

    FAILED = "{failure} in {agreeing} of {trials:launch}: {why}"
    AGREED = "{agreeing} of {trials:launch}: {why}"
    TOO_FEW_AGREE = "{verdicts} in {bad} of {trials:launch}, but two must agree, so run more: {why}"
    GOOD = "{verdicts} in {good} of {trials:launch}; the longest: {why}"
    EXITED_0 = "exit 0 in {good} of {launches:launch}"
    NOTHING_MEASURED = "{good} of {launches:launch} ended well; nothing was measured"
    NO_WHOLE_TRIAL = "no launch ran the whole budget of {steps}: {why}"
    OUT_OF_TIME = "no launch ran the whole budget of {steps} (raise `timeout` or lower `budget`): {why}"
    NO_TRIAL_FINISHED = "no launch finished"

    SOME_FAILED = "{failed} of {launches:launch} failed"
    SOME_GROW = "{growth}, in {bad} of {launches:launch}"
    NOT_COUNTED = "not counted in a whole launch"
    MEMORY_NOT_MEASURED = "memory was not measured"

    TIME_OVER = "{why}, when its time of {time_s:g} s ran out"
    ROWS_ARE_NOT_STEPS = (
        "the lines of its output are not steps: {burst}; have it flush each line (`python -u`, `stdbuf -oL`)"
    )
    TIMES_DISTURBED = "step times are not judged ({disturbance}); {why}"


@unique
class RepeatReason(Reason):
    """Says why a cell needs another trial."""

    SETUP_FAILED = "setup failed once"
    TOO_FEW_TRIALS = "{trials} of at least {least} launches"
    NO_TWO_AGREE = "{verdicts}, but no two launches agree"
    SHM_SHARED = "its files in /dev/shm could not be distinguished from those of other launches"
    NOT_FINITE_ONCE = "a step returned NaN or infinity in one launch, but two must agree"
    DISAGREE = "the launches disagree"
    NO_WHOLE_TRIAL = "no launch ran the whole budget"


@unique
class TrialReason(Reason):
    """Says what a launch shows, and why a verdict rests on too few launches."""

    ON_GPU = "{shown} of GPU memory"

    TOO_FEW_RAN = "only {count} of {least} launches could run; so far: {why}"
    SO_FAR = "so far, by {count} of {least} launches: {why}"
    SO_FAR_STOPPED = "so far, by {count} of {least} launches ({stopped}): {why}"
