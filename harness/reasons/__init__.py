"""Defines the reasons that the judge, the searches and the schedulers give, and the sentence of each.

A reason is a member of an enumeration, one enumeration for each subject. Its value is the template of its sentence, and
calling it with the template's values returns the sentence. Code chooses and compares reasons, never sentences, so that
every sentence can be rewritten here without a change elsewhere.
"""

from harness.reasons.judging import *
from harness.reasons.reason import *
from harness.reasons.running import *
from harness.reasons.searching import *
