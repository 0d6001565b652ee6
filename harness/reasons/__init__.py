"""Defines the reasons that the judge, the searches and the schedulers give, and the sentence of each.

A reason is a member of an enumeration, one enumeration for each subject. Its value is the template of its sentence, and
calling it with the template's values returns the sentence. Code chooses and compares reasons, never sentences, so that
every sentence can be rewritten here without a change elsewhere.
"""

from harness.reasons.observed import ObservedDifference
from harness.reasons.reason import Reason
from harness.reasons.rounds import RoundReason
from harness.reasons.rows import RowWarning
from harness.reasons.signals import Remedy, SignalReason
from harness.reasons.trace import CountReason, GrowthReason, LayerName, MemoryName, TraceReason
from harness.reasons.turns import TurnReason
from harness.reasons.values import ValueReason

__all__ = [
    "CountReason",
    "GrowthReason",
    "LayerName",
    "MemoryName",
    "ObservedDifference",
    "Reason",
    "Remedy",
    "RoundReason",
    "RowWarning",
    "SignalReason",
    "TraceReason",
    "TurnReason",
    "ValueReason",
]
