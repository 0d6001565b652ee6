"""Samples the GPUs during a trial.

Only the supervisor samples: the scenario process never calls NVML, not even between its steps. At a look the scenario
stands still; between looks memory is sampled at most every 50 ms, and the rest every 250 ms, or less often if that
would take more than 1 % of the time.
"""

import collections
import os
import time

from .. import samples
from ..probes import tree
from .devices import visible

MEMORY, OWN = samples.COLUMNS.index("gpu_kib"), samples.COLUMNS.index("gpu_process_kib")
MEMORY_PERIOD_S = 0.05
STATE_PERIOD_S = 0.25
SHARE = 0.01
IDLE = 0x1
HEAT = 0x20 | 0x40  # software and hardware thermal slowdown
POWER = 0x4 | 0x8 | 0x80  # software power cap, and the hardware's brakes
MOST_XIDS = 16


class Pace(object):
    """Decides when a costly action is due again. The smaller of its last two costs counts: the other was disturbed
    from outside."""

    def __init__(self, period_s, clock, share=SHARE):
        self._period_s = period_s
        self._clock = clock
        self._share = share
        self._due = 0.0
        self._last_cost_s = 0.0

    def due(self, now):
        return now >= self._due

    def left_s(self, now):
        return max(0.0, self._due - now)

    def slow_down(self):
        """Halve the rate from now on."""
        self._period_s *= 2

    def spent(self, began):
        """Record that the action ran from `began` until now."""
        took_s = self._clock() - began
        cost_s, self._last_cost_s = min(took_s, self._last_cost_s), took_s
        self._due = began + max(self._period_s, cost_s / self._share)


class Monitor(object):
    """Samples the GPUs of a trial, and fills the columns `gpu_kib` and `gpu_process_kib` of the table."""

    def __init__(self, gpus, table, environment, clock=time.perf_counter):
        self._cards = visible(gpus.cards, environment)
        self._parents = list({id(card.parent): card.parent for card in self._cards}.values())
        self._table = table
        self._clock = clock
        self._memory_pace, self._state_pace = Pace(MEMORY_PERIOD_S, clock), Pace(STATE_PERIOD_S, clock)
        self._row = -1
        self._window = Window()
        self._xids = set()
        self._newest_xid = None
        self._next_xid = gpus.library.xids(self._parents) if self._cards else None
        self.columns = {}
        if self._cards:
            table.clear(MEMORY, 2)
            self.columns = {"gpu_kib": MEMORY, "gpu_process_kib": OWN}

    def beat_s(self, otherwise_s):
        """Return the maximum number of seconds until `tick` should be called."""
        return min(MEMORY_PERIOD_S, otherwise_s) if self._cards else otherwise_s

    def tick(self, now, first_row):
        """Take the samples that are due; rows before `first_row` are already sent."""
        if not self._cards:
            return
        row = self._table.taken() - 1
        if row >= max(first_row, self._row + 1) and self._memory_pace.due(now):
            self._sample_memory(row)
            self._memory_pace.spent(now)
        if self._state_pace.due(now):
            began = self._clock()
            self._sample_state()
            self._state_pace.spent(began)

    def look(self):
        """Return the GPU fields of a look, since the last one. Call it while the scenario stands still."""
        if not self._cards:
            return {}
        row = self._table.taken() - 1
        used_kib, own_kib = self._sample_memory(row) if row >= 0 else self._memory_kib()
        if not self._window.count:
            self._sample_state()
        fields, self._window = self._window.fields(), Window()
        fields.update(gpu_kib=used_kib, gpu_process_kib=own_kib)
        self._drain_xids()
        fields["gpu_xid"] = self._newest_xid
        return fields

    def notes(self):
        """Return what must be reported however the trial ends: errors of the driver, a lost GPU."""
        if not self._cards:
            return []
        self._drain_xids()
        told = ["NVIDIA driver: Xid %d during the trial" % number for number in sorted(self._xids)]
        if any(device.lost for card in self._cards for device in (card.device, card.parent)):
            told.append("NVML: a GPU is lost: it has fallen off the bus")
        return told

    def _sample_memory(self, row):
        used_kib, own_kib = self._memory_kib()
        for place, kib in ((MEMORY, used_kib), (OWN, own_kib)):
            if kib is not None:
                self._table.column(place)[row] = kib
        self._row = row
        return used_kib, own_kib

    def _memory_kib(self):
        """Return (used on the devices, used by this trial's processes), each None if the driver does not report it."""
        told = [card.device.memory_bytes() for card in self._cards]
        if None in told:  # the sum of the others would look like a fall
            return None, self._own_kib()
        return sum(used for used, _ in told) / 1024.0, self._own_kib()

    def _own_kib(self):
        rows = [(card.device.processes() or {}).items() for card in self._cards]
        told = {pid: used for items in rows for pid, used in items if used is not None}
        if not told:
            return None
        pids = set(tree.descendants(os.getpid()))
        own = [used for items in rows for pid, used in items if pid in pids and used is not None]
        return sum(own) / 1024.0 if own else None

    def _sample_state(self):
        self._window.add([_state(device) for device in self._parents])
        self._drain_xids()

    def _drain_xids(self):
        """Read the pending Xid errors, MOST_XIDS at most: a driver may report one without end."""
        for _ in range(MOST_XIDS):
            number = self._next_xid() if self._next_xid is not None else None
            if number is None:
                return
            self._newest_xid = number
            self._xids.add(number)


State = collections.namedtuple("State", "clock_mhz reasons temperature_c power_w busy")


def _state(device):
    return State(
        device.clock_mhz(), device.reasons() or 0, device.temperature_c(), device.power_w(), device.busy_percent()
    )


class Window(object):
    """States of the GPUs between two looks, reduced to the fields of a look: those of the worst card."""

    def __init__(self):
        self.count = 0
        self._working = 0
        self._hot = 0
        self._capped = 0
        self._reasons = 0
        self._clocks = 0
        self._clock_sum_mhz = 0.0
        self._most = {}

    def add(self, states):
        """Add one sample of every card. Clocks and reasons count while a card works."""
        self.count += 1
        working = [state for state in states if not state.reasons & IDLE]
        reasons = 0
        for state in working:
            reasons |= state.reasons
        self._reasons |= reasons
        self._working += bool(working)
        self._hot += bool(reasons & HEAT)
        self._capped += bool(reasons & POWER)
        clocks = [state.clock_mhz for state in working if state.clock_mhz is not None]
        if clocks:
            self._clocks += 1
            self._clock_sum_mhz += min(clocks)
        for name in ("temperature_c", "power_w", "busy"):
            told = [getattr(state, name) for state in states if getattr(state, name) is not None]
            if told:
                self._most[name] = max([*told, self._most.get(name, 0)])

    def fields(self):
        share = float(self._working) or None
        return {
            "gpu_clock_mhz": self._clock_sum_mhz / self._clocks if self._clocks else None,
            "gpu_reasons": self._reasons,
            "gpu_heat_share": share and self._hot / share,
            "gpu_power_share": share and self._capped / share,
            "gpu_temperature_c": self._most.get("temperature_c"),
            "gpu_power_w": self._most.get("power_w"),
            "gpu_busy": self._most.get("busy"),
        }
