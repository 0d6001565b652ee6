"""Lists the reasons of a run: for and against launches, and about machines, environments and plans."""

from __future__ import annotations

from enum import unique

from harness.reasons.reason import Reason


@unique
class TurnReason(Reason):
    """Says why a row comes before the others."""

    FINISH = "a round that was begun is finished first"
    FIRST = "the first round of every row comes before the second round of any row"
    CONFIRM = "what looks bad is confirmed before what looks good is launched again"
    NEAR = "this row takes the fewest seconds of those near a limit"
    GOOD = "no row has anything to confirm; this one takes the fewest seconds"


@unique
class RoundReason(Reason):
    """Says why another round of all compared versions, or another launch of one version, is needed."""

    INCOMPLETE_ROUNDS = "only {common} of {wanted} rounds have the {signal} of every version"
    SEEMS_TO_DIFFER = "{signal} seems to differ, and {rounds} rounds are needed to show it"
    TWO_MODES = "some launches take longer as a whole, and more launches show of which versions"
    TOO_IMPRECISE = "{signal} is known to ±{visible:.1%}, and the limit is {limit:.1%}"

    TOO_FEW_FAILED = "all its launches failed, but there are too few to show that it always fails"
    MAY_BE_LUCKY = (
        "there is a chance of {chance:.0%} that {good} would miss a failure that occurred in {failed} of {launches} "
        "launches of a nearby version"
    )


@unique
class LaunchReason(Reason):
    """Says why versions are launched next, or why no more are."""

    ROUND = "round {number} of {least}"
    AA_NOISE_UNKNOWN = "the same image again, to measure the A/A noise, which is how far two equal images differ"

    CHANGE_UNCONFIRMED = "{versions} again, to confirm the change"
    FAILED_ALONGSIDE = "it failed alongside other launches, so it is launched alone"

    ENOUGH = "{trials:launch} per version; more would not change the result"


@unique
class SkipReason(Reason):
    """Says why a version is not launched, or not launched again."""

    OUTSIDE_LAUNCHED = "not needed: outside the versions that were launched"
    BETWEEN_BAD = "not needed: between {older} and {newer}, both bad"
    BETWEEN_GOOD = "not needed: between {older} and {newer}, both good"
    BETWEEN_DIFFERENT = "not needed: between {older} and {newer}, which differ"
    BAD_SINCE = "{seen}; bad since {version}, where launches agree: the search needed no more launches of this version"

    NOT_TO_DECIDE = "not measured, and not needed for --decide"

    STOPPED_AT_FIRST_BAD = "stopped by --until first-bad"
    STOPPED_BY_QUICK = "stopped by --quick"
    STOPPED_BY_TIME = "stopped by --time"


# ---------------------------------------------------------------- machines


CONDITION_NAMES = {
    "host.name": "host name",
    "host.machine": "machine",
    "host.cpu": "CPU",
    "host.cpus": "number of CPUs",
    "host.seen_cpu": "CPU",
    "host.memory_bytes": "memory",
    "host.huge_pages": "transparent huge pages",
    "host.page_kib": "page size",
    "host.cgroup": "cgroup version",
    "gpu.uuid": "GPU",
    "gpu.name": "GPU model",
    "gpu.driver": "GPU driver",
    "gpu.cuda": "driver's CUDA version",
    "gpu.power_limit_w": "GPU power limit",
    "settings.budget": "steps",
    "settings.memory_limit": "memory limit",
    "settings.agent": "agent version",
    "image.probes": "probes",
}
"""Field -> its name in messages, if it differs from the field."""
HOST_FIELDS = {"cpu": "CPU", "cpus": "CPUs", "kernel": "kernel", "architecture": "architecture", "engine": "engine"}
"""Fact of an engine -> its name in messages. Clock frequencies are left out, because they change by themselves."""
GPU_FIELDS = {
    "name": "GPU",
    "driver": "GPU driver",
    "memory_mib": "GPU memory (MiB)",
    "power_limit_w": "GPU power limit (W)",
    "ecc": "GPU ECC",
    "mig": "GPU MIG",
}
"""Property of a GPU -> its name in messages."""


@unique
class MachineReason(Reason):
    """Says why a machine of a pool, or the row on it, is given up, and how a machine differs from the others."""

    LEFT_OUT = (
        "{machine} is left out of the pool: it differs in {difference}; make it match the others, or define a separate "
        "host for it"
    )
    NODE_LEFT_OUT = (
        "{machine} is left out of the pool: it differs in {difference}; make `select` match equal nodes only, or name "
        "this one in `nodes` of another host"
    )
    NONE_USABLE = "no machine of the pool can be used: {problems}"
    LOST = "{machine} was lost: {error}"
    LOST_AND_CHANGED = "{machine} was lost: {error}; it came back with {difference}"
    LOST_AND_TAKEN = "{machine} was lost, and another sweep uses it now"

    LOST_DURING_ROUND = "the machine was lost in the middle of its round"
    LOST_DURING_ROW = "{machine} was lost while it measured this row"
    SEVERAL_LOST_DURING_ROW = "{count} machines were lost one after the other while they measured this row: {machines}"

    SLOWER = "{percent:.0f} % slower than usual in this pool"
    FASTER = "{percent:.0f} % faster than usual in this pool"


# ---------------------------------------------------------------- environments


@unique
class EnvironmentReason(Reason):
    """Says why a part of the environments of two launches is unknown."""

    NEVER_RAN = "no launch of one side recorded its environment"
    WHEELS_UNKNOWN = "an older launch did not record which wheels its packages came from"
    LIBRARIES_UNKNOWN = (
        "loaded libraries are recorded after setup and the first step, which one of the launches did not complete"
    )


@unique
class InstalledName(Reason):
    """Says how a package was installed."""

    PURE = "pure Python"
    COMPILED = "compiled"
    FROM_SOURCE = "compiled from source, it seems"


# ---------------------------------------------------------------- plans


@unique
class PlanReason(Reason):
    """Says why a plan leaves a cell out, and how a host gets an image."""

    NEEDS_ENGINE = "needs a container engine"

    PULL = "{name}: pull {reference}{mark}"
    BUILD = "{name}: build {context} with {args}{mark}"
    INSTALL = "{name}: install {packages} over {base}{mark}"
    INSTALL_IN_ENVIRONMENT = "{name}: install {packages} in a virtual environment of {python}{mark}"
    RUNNING_PYTHON = "the running Python"
