"""Lists the GPUs that this container sees, with their properties, and determines which of them CUDA will use."""

import collections
import itertools

from . import nvml

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
        processes = card.device.processes()
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
            "processes": None if processes is None else len(processes),
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
