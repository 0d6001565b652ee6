"""Lists the reasons for verdicts: on traces, signals, returned values, cells, rows, and pairs of runs."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class CellReason(Reason):
    """Says what the trials of a cell show together, and what the verdict on one of them leaves out."""

    FAILED = "{failure} in {agreeing} of {trials:launch}: {why}"
    AGREED = "{agreeing} of {trials:launch}: {why}"
    TOO_FEW_AGREE = "{verdicts} in {bad} of {trials:launch}; two must agree, so more launches are needed: {why}"
    GOOD = "{verdicts} in {good} of {trials:launch}; the longest: {why}"
    EXITED_0 = "exit 0 in {good} of {launches:launch}"
    NOTHING_MEASURED = "{good} of {launches:launch} ended well; nothing was measured"
    NO_WHOLE_TRIAL = "no launch ran the whole budget of {steps}: {why}"
    OUT_OF_TIME = "no launch ran the whole budget of {steps} (raise `timeout` or lower `budget`): {why}"
    NO_TRIAL_FINISHED = "no launch finished"

    SOME_FAILED = "{failed} of {launches:launch} failed"
    SOME_GROW = "{growth}, in {bad} of {launches:launch}"
    NOT_COUNTED = "it was not counted in a whole launch"
    MEMORY_IS_NOISY = "it rises and falls too much"
    MEMORY_NOT_MEASURED = "memory was not measured"
    GROWTH_NOT_JUDGED = "growth is not judged: {steps}, and at least {least} are needed"
    GROWS_BY_DESIGN = "growth of memory is not judged: each round of boosting adds a tree to the model"
    GROWS_ALIKE = (
        "growth of memory is not judged: it is about {rate:.3g} KiB a line in every version, as in a program that "
        "keeps its results"
    )
    WITHOUT_GROWTH = "{good} of {launches:launch} ended well; {why}"
    NO_STEP_SEEN = "no step was seen"
    STEPS_MADE = "it made {count:step}"
    SAMPLES_TAKEN = "it ended after {count:sample}"

    UNLIKE_STEPS = "the versions count other steps, so only whole runs are compared"
    STEPS_BY_VERSION = (
        "the versions count other steps ({kinds}), so only whole runs are compared; `steps_are` or `step_pattern` says "
        "what a step is"
    )
    LINES_DIFFER = (
        "launches of {version} that ended by themselves printed {least} to {most} of the lines that count as steps, so "
        "only whole runs are compared; `steps_are` or `step_pattern` says what a step is"
    )
    BAR_RARELY_DRAWN = "a progress bar was drawn only {times} times in a launch, so only whole runs are compared"
    LINES_CAME_FIRST = "{unlike}: `steps_are: {kind}` leaves out lines that are printed before the first step"

    TIME_OVER = "{why}; its time of {time_s:g} s ran out"
    ROWS_ARE_NOT_STEPS = (
        "the lines of its output are not steps: {burst}; have it flush each line (`python -u`, `stdbuf -oL`)"
    )
    TIMES_DISTURBED = "step times are not judged ({disturbance}); {why}"


@unique
class StepsReason(Reason):
    """Says what a version counts as a step."""

    NONE = "none"
    CALLS = "calls of step"
    LINES = 'lines like "{shape}"'
    FRAMEWORK = "steps of {kind}"


@unique
class RepeatReason(Reason):
    """Says why a cell needs another trial."""

    SETUP_FAILED = "setup failed once"
    TOO_FEW_TRIALS = "{trials} of at least {least} launches"
    NO_TWO_AGREE = "{verdicts}, but no two launches agree"
    PLACE_SHARED = "its files could not be distinguished from those of other launches"
    NOT_FINITE_ONCE = "a number was NaN or infinity in one launch, but two must agree"
    DISAGREE = "the launches disagree"
    NO_WHOLE_TRIAL = "no launch ran the whole budget"


@unique
class TrialReason(Reason):
    """Says what a launch shows, and why a verdict rests on too few launches."""

    WHOLE_RUN = "ended well after {seconds:.3g} s"
    NOT_OF_GROWTH = "ended well after step {steps}"
    ON_GPU = "{shown} of GPU memory"
    SMALL_GROWTH = "small growth of {rate:.3g} {unit}"

    PORT_IN_USE = (
        "a port that the program needs is in use on this host, or two of its processes ask for the same one; let it "
        "take a free one, as `torchrun --standalone` does: {message}"
    )

    TOO_FEW_RAN = "only {count} of {least} launches could run; so far: {why}"
    SO_FAR = "so far, by {count} of {least} launches: {why}"
    SO_FAR_STOPPED = "so far, by {count} of {least} launches ({stopped}): {why}"


# ---------------------------------------------------------------- rows


@unique
class RowWarning(Reason):
    """Says what the findings of a row leave out or rest on."""

    NO_BASELINE = (
        "{series} on {lane}, {variant}: the baseline, {baseline}, was not measured, so a version is bad if it is worse "
        "than the one before, and a series that begins worse than the baseline is not reported"
    )
    IN_OTHER_ROUNDS = (
        "{series} {versions} on {lane}, {variant}: they were not measured in the same rounds as the others, so step "
        "times are not compared; --fresh measures all versions side by side"
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

    MUCH_OUTPUT = (
        "{series} {version} on {lane}, {variant}: a launch printed {mb:,.0f} MB; printing that, and reading it, took "
        "part of its time and of its step times"
    )
    BUSY_HOST = (
        "{series} on {lane}, {variant}: its step times were measured while other lanes of {host} were busy "
        "(`parallel: true`); run it alone before relying on them"
    )
    MAY_BE_LUCKY = (
        "{series} {versions} on {lane}, {variant}: they passed in too few launches to rule out the fault of the "
        "neighbouring version, so the finding names a range of versions; run more launches (`--trials`) to narrow it"
    )
    INSTALLED_OTHERWISE = (
        "{series} on {lane}: {package} was installed as {old} in {before} and as {new} in {after}; whether that makes "
        "the difference was not tested"
    )

    STARTED_AGAIN = "{row}: started again on another machine: {why} (see {folder}/)"
    STARTED_AGAIN_AFTER_FAILURES = (
        "{row}: started again on another machine: {why}; there, {versions} had failed (see {folder}/)"
    )
    SEARCHED = "{row}: searched: {found}"


# ---------------------------------------------------------------- signals


@unique
class SignalReason(Reason):
    """Says why a signal of a version is judged as it is, or not judged."""

    LIMIT_IS_NONE = "the limit is none"
    NOTHING_OF_RUN = "all steps together take less than 2 % of the run, so the run time decides"
    NOT_MEASURED = "not measured"
    UNTESTED = "the version is untested"
    NO_STEPS = "there are no steps to time"
    ONE_RANK = "no launch has several ranks"
    NO_LONG_LAUNCH = "no launch of the whole budget was long enough"
    TOO_FEW_STEPS = "too few steps"
    TOO_LITTLE_CPU = "too little processor time to count"
    NO_ITEMS = "the scenario returns no `items`"
    NO_SETUP = "a command or a program has no separate setup"
    NO_STEP_TIMED = "no step was timed"
    NO_RUN_TIME = "it did not run to its own end"
    NO_END_TIME = "no launch ended by itself after its last step"
    NO_GPU = "no GPU"
    NO_GPU_POOL = "no GPU pool"
    ABSENT_HERE = "{absent} here, unlike in other versions"
    BAD_VERSION = "this version is bad: {verdict}"

    NO_OTHER_VERSION = "there is no other version to compare it with"
    OTHERS_ARE_BAD = "all versions but one are bad"
    NO_USABLE_LAUNCH = "none of its launches can be compared"
    NO_WARM_LAUNCH = "no launch started with its files in the page cache while no other launch ran"
    TOO_FEW_LAUNCHES = "too few of its launches can be compared with those of the others"
    FEW_ENDS = "too few launches ran to their own end"
    VARIES = "it varies so much that only a rise by {visible:.0%} would have shown"
    TOO_FEW_ROUNDS = "too few rounds in which every version was measured"
    OTHER_ROUNDS = "it was not measured in the same rounds as the others"
    ENDED_AS_SLOW = "its steps are so slow that its launches ended early, and only their times are compared"

    BISECTED = "according to the comparisons of the bisection"
    NOT_BISECTED = "a bisection does not compare this signal; `--search full` does"

    FAR_FROM_VERSION_BEFORE = "{signal} is {ratio} times that of the version before, in {launches}"
    FAR_FROM_LAST_MEASURED = (
        "{signal} is {ratio} times that of the last version before it that was measured, in {launches}"
    )

    TWO_MODES = "{slow} of {launches:launch} take {longer:.2g} % longer than the others"
    LAUNCHES_DIFFER = "{launches} that differ by a factor of {ratio}"

    UNCONFIRMED = "it seems to have changed, which needs {launches} launches of each version to be confirmed"
    MAY_BE_CHANCE = "it seems to have changed, which may be due to chance among so many comparisons"


@unique
class Remedy(Reason):
    """Says what would let a signal be judged."""

    SETTLED = "more launches would settle it"
    MORE_LAUNCHES = "more launches (`--trials {launches}`)"
    WIDER_LIMIT = "a wider limit (`{limit}`, or none)"
    QUIETER_HOST = "a quieter host"
    MORE_STEPS = "more steps (`steps: {{budget: …}}`)"
    LONGER_RUN = "a longer run of the program, which ends by itself,"
    LATER_LOOK = "a larger `steps: {{first: …}}` lets every launch make such a step"
    METRIC_LIMIT = "`metrics: {{{name}: {{rise: 10%}}}}` or `drop` judges it"
    FRESH = "`--fresh` measures all versions again, side by side"
    SAME_SWEEP = "run the same command again to continue"
    SWEEP_WITHOUT_STOP = "{why}; run the same command without it to continue"


# ---------------------------------------------------------------- trace


@unique
class GrowthReason(Reason):
    """Names the pattern of a leak, or the condition of a leak that a series does not meet."""

    STEADY = "at the same rate throughout"
    BEGAN_LATE = "at the same rate since it began"
    COVERED_BY_WARM_UP = "at the same rate since the warm-up"
    RISING_FLOOR = "in the floor under its saw-teeth"
    STEADY_JUMPS = "by {jumps} jumps at a steady rate"
    STEADY_AT_LOOKS = (
        "at the same rate from look to look, with garbage collected; a table that doubles in size may look the same"
    )

    NO_ROWS = "no samples of memory or step times to judge"
    TOO_FEW_ROWS = "too few samples to judge: {rows} of at least {least}"
    NO_STEADY_GROWTH = "no steady growth in the second half"
    BELOW_LIMIT = "the growth is slower than the limit"
    FELL_BEFORE = "memory fell before it grew"
    NOT_THROUGHOUT = "the growth is not steady over the whole trace"
    SLOWING_DOWN = "the growth is slowing down"
    FEW_ALLOCATIONS = "it grew by no more than two of its smallest allocations"
    ONE_JUMP = "one jump accounts for most of the growth"
    RANDOM_WALK = "memory that rises and falls at random may grow as much"


@unique
class TraceReason(Reason):
    """Says what a trace shows about memory, the C heap, GPU memory, child processes and the step time."""

    GROWS = "{memory} grows {rate:.4g} KiB/{per} ({low:.4g} to {high:.4g})"
    GROWS_BY_CYCLES = "{memory} grows {rate:.4g} KiB/{per}, and gc.collect frees it: reference cycles"
    GROWS_SLOWLY = (
        "{memory} still grows {rate:.2g} KiB/{per}, below the limit of {limit:g}: "
        "a leak of more than {excluded:.2g} KiB/{per} is ruled out"
    )
    GROWS_EARLY = "{grows}: too early to distinguish it from a buffer that fills"

    PLATEAU = "{memory} rose {rise_mib:.1f} MiB and then stopped rising"
    FLAT = "{memory} is flat"
    MAY_LEAK = "{grows}, but {unmet}"
    NOISY = "{memory} is too noisy to tell"
    RISE_DUE = "{memory} rises by {rise:.4g} KiB at a time, and the next rise may be due"

    RULED_OUT = "{found}: a leak of more than {excluded} KiB/{per} is ruled out"
    STEADY_RULED_OUT = "{found}, and a steady one of {detectable} would have been seen"

    HEAP_ALONE = "RSS alone does not show it: the growth fills memory that was free, or garbage hides it"
    GPU_SHARED = "{found}, but other processes use the GPU"

    SLOWDOWN = "a step takes {rise:.0%} longer at the end than after the first quarter"
    STEPS_TOO_SHORT = "the steps are too short for the clock"
    STEP_TIME_FLAT = "step time is flat; memory was not measured"
    UP_TO_STEP = "{found} (up to {per} {last})"


@unique
class CountReason(Reason):
    """Says why a count grows, does not grow, or cannot be judged."""

    GROWS = "{kind}{pace} more, at a constant rate"
    RULED_OUT = "growth of more than {excluded:.2g} a {per} is ruled out"

    NOT_AT_ONE_RATE = "it rose by {rise:.4g} in the last {steps:,.0f} {per}s, but not at a constant rate"
    RISES_AND_FALLS = "it rises and falls, and both its highest and its lowest counts rise"
    COUNTED_TOO_RARELY = "it was counted too rarely to judge"
    COUNTED_AT_ONCE = (
        "the {per}s are so quick that all counts were taken at nearly the same time, and other processes may have done "
        "their work before"
    )
    PLACE_SHARED = "other launches used the same {place} at the same time; a launch that runs alone would settle it"


@unique
class MemoryName(Reason):
    """Names the memories that can grow."""

    RSS = "RSS"
    HEAP = "the C heap in use"
    GPU_POOL = "the framework's GPU memory"
    GPU_PROCESS = "the process's GPU memory"
    GPU = "the GPU's memory"
    GPU_RESERVED = "the GPU memory reserved by the framework"
    WORKERS = "it"


@unique
class LayerName(Reason):
    """Names the layers that can hold leaked memory."""

    CYCLES = "reference cycles"
    OBJECTS = "python objects"
    NATIVE = "native heap"
    ALLOCATOR = "allocator retention"
    DIRECT_MMAP = "direct mmap"
    FILES = "file or shared memory"

    GPU_POOL = "gpu pool"
    GPU_FRAGMENTATION = "gpu fragmentation"
    GPU_DRIVER = "gpu driver"


# ---------------------------------------------------------------- values


@unique
class ValueReason(Reason):
    """Says why a number of a version is judged as it is, or not judged."""

    NO_WHOLE_LAUNCH = "not measured: no launch completed its steps"
    NOT_RETURNED = "this version gave no `{name}`"
    NO_LIMIT = "checked for NaN and infinity only: it has no limit"
    NO_DIRECTION = "checked for NaN and infinity only: its name does not tell what is worse"

    NOT_FINITE = "NaN or infinity in {name}"
    NAN = "`{name}` was NaN or infinity"
    NAN_EVERYWHERE = "`{name}` was NaN or infinity in every version"
    NAN_ONCE = "a number was NaN or infinity in one launch"

    ABSENT = "no step gave `{name}`"
    ABSENT_HERE = "no step gave `{name}`, unlike in other versions"
    RETURNED_TEXT = "no step gave a number as `{name}`"
    RETURNED_TEXT_HERE = "no step gave a number as `{name}`, unlike in other versions"
    NOT_IN_COMMON_STEPS = "none of the steps that all launches made gave `{name}`"

    TOO_FEW_AGREE = "two launches that agree are needed"
    VARIES_TOO_MUCH = "its launches differ so much that a change beyond the limit might not have shown"
    VARIES = (
        "`{name}: equal` cannot be checked: the value differs between launches of one version; seed the scenario, or "
        "write `{name}: {{change: 1%}}`"
    )


@unique
class ObservedDifference(Reason):
    """Says what differs between a version and the one before."""

    RETURNED = "{name} is new"
    NO_LONGER_RETURNED = "{name} is gone"
    SOME_STEPS_DIFFER = "{name} differs in some steps"
    VALUE_CHANGED = "{name} {old:.6g} → {new:.6g}"
    LAST_DIGITS_CHANGED = "{name} {old!r} → {new!r}"
    NO_LONGER_REPRODUCIBLE = "{name} was the same in all launches and now differs from launch to launch"

    FEWER_STEPS = "it ends after {new:step}; the version before makes {old}"
    MORE_LINES = "and {count} more new lines"


# ---------------------------------------------------------------- compared


@unique
class CompareReason(Reason):
    """Says why two cells are not compared."""

    TAKEN_OVER = (
        "measured once: the later run took over these trials from the first; sweep with --fresh to measure again"
    )
    WHEELS = "wheel of {name} {before} and {after}"
    SCRIPTS = "script or command, its files or the agent: {one} and {other}"
