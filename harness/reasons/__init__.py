"""Defines the reasons that the judge, the searches and the schedulers give, and the sentence of each.

A reason is a member of an enumeration, one enumeration for each subject. Its value is the template of its sentence, and
calling it with the template's values returns the sentence. Code chooses and compares reasons, never sentences, so that
every sentence can be rewritten here without a change elsewhere.
"""

from harness.reasons.searching import BisectReason
from harness.reasons.judging import CellReason, RepeatReason, TrialReason
from harness.reasons.judging import CompareReason
from harness.reasons.running import EnvironmentReason, InstalledName
from harness.reasons.running import LaunchReason, RoundReason, SkipReason, TurnReason
from harness.reasons.running import MachineReason
from harness.reasons.searching import NarrowName, NarrowReason
from harness.reasons.running import PlanReason
from harness.reasons.reason import Reason
from harness.reasons.judging import RowWarning
from harness.reasons.judging import Remedy, SignalReason
from harness.reasons.judging import CountReason, GrowthReason, LayerName, MemoryName, TraceReason
from harness.reasons.judging import ObservedDifference, ValueReason

__all__ = [
    "BisectReason",
    "CellReason",
    "CompareReason",
    "CountReason",
    "EnvironmentReason",
    "GrowthReason",
    "InstalledName",
    "LaunchReason",
    "LayerName",
    "MachineReason",
    "MemoryName",
    "NarrowName",
    "NarrowReason",
    "ObservedDifference",
    "PlanReason",
    "Reason",
    "Remedy",
    "RepeatReason",
    "RoundReason",
    "RowWarning",
    "SignalReason",
    "SkipReason",
    "TraceReason",
    "TrialReason",
    "TurnReason",
    "ValueReason",
]
