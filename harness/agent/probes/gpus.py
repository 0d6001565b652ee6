"""Lists the GPUs that this container sees, determines which of them CUDA will use, and samples these during a trial.

Only the supervisor samples: the scenario process never calls NVML, not even between its steps. At a look, the scenario
stands still. Between looks, memory is sampled at most every 50 ms and the rest every 250 ms, or less often if that
would take more than 1 % of the time.
"""

import collections
import itertools
import time

from .. import samples
from . import nvml, processes

ORDER, SUBSET = "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"

MOST_LINKED = 8  # cards whose connections are told

Card = collections.namedtuple("Card", "index device parent")
Card.__doc__ = "A GPU, or a MIG instance of the card `parent`; `parent` is the device itself otherwise."


class Gpus(object):
    """The visible GPUs. `problem`: why the driver's library reports none, or ""."""

    def __init__(self, library=None, problem=""):
        self.library = library
        self.problem = problem
        self.cards = [] if library is None else _cards(library)

    def facts(self):
        """Return the fields of `hello`: `gpus`, and `gpu_links` between several, or `gpu_problem`."""
        if self.problem:
            return {"gpu_problem": self.problem}
        links = {
            "%d and %d" % (one.index, other.index): one.device.link(other.device)
            for one, other in itertools.combinations(self.cards[:MOST_LINKED], 2)
        }
        told = {"gpus": [self._properties(card) for card in self.cards]} if self.cards else {}
        links = {pair: link for pair, link in links.items() if link}
        return dict(told, gpu_links=links) if links else told

    def _properties(self, card):
        memory = card.device.memory_bytes()
        pids = card.device.processes()
        return {
            "index": card.index,
            "uuid": card.device.uuid(),
            "name": card.device.name(),
            "compute_capability": card.device.compute_capability() or card.parent.compute_capability(),
            "driver": self.library.driver(),
            "cuda": self.library.cuda(),
            "memory_mib": memory and memory[1] >> 20,
            "power_limit_w": card.parent.power_limit_w(),
            "ecc": card.parent.ecc(),
            "mig": card.parent.mig(),
            "parent": None if card.parent is card.device else card.parent.uuid(),
            "processes": None if pids is None else len(pids),
        }


def find_gpus(name=nvml.NAME):
    """Return the GPUs of this container, as the driver's library lists them; none if there is no such library."""
    try:
        return Gpus(nvml.load_nvml(name))
    except nvml.Unavailable as error:
        return Gpus(problem=str(error))


def _cards(library):
    """Return every card, or its MIG instances instead: a card in MIG mode can be used only through them."""
    cards = []
    for index, device in library.devices():
        instances = device.instances() if device.mig() else []
        cards += [Card(index, instance, device) for instance in instances] or [Card(index, device, device)]
    return cards


def visible_cards(cards, environment):
    """Return the cards that CUDA_VISIBLE_DEVICES lets CUDA use; all of them if its numbers are ambiguous."""
    if SUBSET not in environment:
        return cards
    names = {card.parent.name() for card in cards}
    numbered = len(names) <= 1 or environment.get(ORDER) == "PCI_BUS_ID"
    chosen = []
    for word in [word.strip() for word in environment[SUBSET].split(",")]:
        if word.isdecimal() and not numbered:
            return cards  # CUDA numbers the fastest card first, and does not report which card that is
        matching = [card for card in cards if _is_meant(card, word)]
        if not matching:
            break  # CUDA stops at the first unknown entry
        chosen += [card for card in matching if card not in chosen]
    return chosen


def _is_meant(card, word):
    if word.isdecimal():
        return card.index == int(word)
    uuids = [uuid for uuid in (card.device.uuid(), card.parent.uuid()) if uuid]
    return word.startswith(("GPU-", "MIG-")) and any(uuid.startswith(word) for uuid in uuids)


# ---------------------------------------------------------------- samples


MEMORY, OWN = samples.COLUMNS.index("gpu_kib"), samples.COLUMNS.index("gpu_process_kib")
MEMORY_PERIOD_S = 0.05
STATE_PERIOD_S = 0.25
SHARE = 0.01
IDLE = 0x1
HEAT = 0x20 | 0x40  # software and hardware thermal slowdown
POWER = 0x4 | 0x8 | 0x80  # software power cap, and the hardware's brakes
MOST_XIDS = 16


class Monitor(object):
    """Samples the GPUs of a trial, and fills the columns `gpu_kib` and `gpu_process_kib` of the table."""

    def __init__(self, gpus, table, environment, clock=time.perf_counter):
        self._cards = visible_cards(gpus.cards, environment)
        self._parents = list({id(card.parent): card.parent for card in self._cards}.values())
        self._table = table
        self._clock = clock
        self._memory_pace = samples.Pace(MEMORY_PERIOD_S, clock, SHARE)
        self._state_pace = samples.Pace(STATE_PERIOD_S, clock, SHARE)
        self._row = -1
        self._window = Window()
        self._xids = set()
        self._newest_xid = None
        self._next_xid = gpus.library.xids(self._parents) if self._cards else None
        self.columns = {}
        if self._cards:
            table.clear(MEMORY, 2)
            self.columns = {"gpu_kib": MEMORY, "gpu_process_kib": OWN}

    @property
    def cards(self):
        """Return the number of GPUs that the trial may use."""
        return len(self._cards)

    def move_to(self, table):
        """Fill another table from now on, which gets the samples so far."""
        if self._cards:
            table.clear(MEMORY, 2)
            for place in (MEMORY, OWN):
                table.column(place)[:] = self._table.column(place)
        self._table = table

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
        """Return the GPU fields of a look, for the time since the last one. Call it while the scenario stands still."""
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
        """Return what must be reported regardless of how the trial ends: errors of the driver, a lost GPU."""
        if not self._cards:
            return []
        self._drain_xids()
        notes = ["NVIDIA driver: Xid %d during the trial" % number for number in sorted(self._xids)]
        if any(device.lost for card in self._cards for device in (card.device, card.parent)):
            notes.append("NVML: a GPU is lost: it has fallen off the bus")
        return notes

    def _sample_memory(self, row):
        used_kib, own_kib = self._memory_kib()
        for place, kib in ((MEMORY, used_kib), (OWN, own_kib)):
            if kib is not None:
                self._table.column(place)[row] = kib
        self._row = row
        return used_kib, own_kib

    def _memory_kib(self):
        """Return (used on the devices, used by this trial's processes), each None if the driver does not report it."""
        memories = [card.device.memory_bytes() for card in self._cards]
        if None in memories:  # the sum of the others would look like a drop
            return None, self._own_kib()
        return sum(used for used, _ in memories) / 1024.0, self._own_kib()

    def _own_kib(self):
        used_by = [item for card in self._cards for item in (card.device.processes() or {}).items()]
        used_by = [(pid, used) for pid, used in used_by if used is not None]
        if not used_by:
            return None
        pids = set(processes.descendants())
        own = [used for pid, used in used_by if pid in pids]
        return sum(own) / 1024.0 if own else None

    def _sample_state(self):
        self._window.add([
            State(each.clock_mhz(), each.reasons() or 0, each.temperature_c(), each.power_w(), each.busy_percent())
            for each in self._parents
        ])  # fmt: skip
        self._drain_xids()

    def _drain_xids(self):
        """Read the pending Xid errors, at most MOST_XIDS: a driver may report one endlessly."""
        for _ in range(MOST_XIDS):
            number = self._next_xid() if self._next_xid is not None else None
            if number is None:
                return
            self._newest_xid = number
            self._xids.add(number)


State = collections.namedtuple("State", "clock_mhz reasons temperature_c power_w busy")


class Window(object):
    """Summarises the states of the GPUs between two looks as the fields of a look, each from the worst card."""

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
        """Add one sample of every card. Clocks and reasons count only for cards that are working."""
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
            values = [getattr(state, name) for state in states if getattr(state, name) is not None]
            if values:
                self._most[name] = max([*values, self._most.get(name, 0)])

    def fields(self):
        """Return the fields of a look; None for a value that no card reported."""
        working = float(self._working) or None
        return {
            "gpu_clock_mhz": self._clock_sum_mhz / self._clocks if self._clocks else None,
            "gpu_reasons": self._reasons,
            "gpu_heat_share": working and self._hot / working,
            "gpu_power_share": working and self._capped / working,
            "gpu_temperature_c": self._most.get("temperature_c"),
            "gpu_power_w": self._most.get("power_w"),
            "gpu_busy": self._most.get("busy"),
        }
