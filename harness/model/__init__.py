"""Defines the records that pass through the harness, all frozen. Their terms are defined in `docs/words.md`.

    matrix.yaml -> Matrix -> Plan (cells) -> Trial (journal) -> CellVerdict -> Finding -> report

Units are in the names: `_kib`, `_mib`, `_s`, `_ms`. Fractions are plain numbers (0.10 is 10 %).
An unknown value is None.
"""

from harness.model.answers import *
from harness.model.attributed import *
from harness.model.engines import *
from harness.model.from_file import *
from harness.model.judged import *
from harness.model.launched import *
from harness.model.matrix import *
from harness.model.measured import *
from harness.model.planned import *
from harness.model.result import *
from harness.model.scenario import *
from harness.model.servers import *
from harness.model.signals import *
from harness.model.step_kinds import *
from harness.model.watching import *
